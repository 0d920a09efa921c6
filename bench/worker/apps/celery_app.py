"""Celery, acknowledging when a task is done, as all others do that acknowledge."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_hijack_root_logger=False)


@app.task
def noop(number: int) -> None:
    pass
