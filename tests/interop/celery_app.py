"""A Celery application whose broker is ours, through kombu's `sqs://` transport."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, urlsplit

from celery import Celery

LIST = os.environ["CELERY_LIST"]  # a file with a line for each task that ran

_key = quote(os.environ["AWS_ACCESS_KEY_ID"], safe="")
_secret = quote(os.environ["AWS_SECRET_ACCESS_KEY"], safe="")
_where = urlsplit(os.environ["ENDPOINT"]).netloc

app = Celery("interop", broker=f"sqs://{_key}:{_secret}@{_where}//")
app.conf.update(
    broker_transport_options={
        "region": os.environ["AWS_DEFAULT_REGION"],
        "is_secure": False,
        "wait_time_seconds": 5,
        "visibility_timeout": 60,
        "queue_name_prefix": "celery-",
    },
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_default_queue="interop",
    worker_prefetch_multiplier=4,
)


def _note(line: str) -> None:
    with Path(LIST).open("a") as file:
        file.write(f"{line}\n")


@app.task
def add(left: int, right: int) -> None:
    _note(f"{left}+{right}={left + right}")


@app.task(bind=True, max_retries=3)
def flaky(self) -> None:  # type: ignore[no-untyped-def]
    """Fails once, and is sent again with a delay."""
    if self.request.retries == 0:
        _note("failed")
        raise self.retry(countdown=1)
    _note("succeeded")


if __name__ == "__main__":  # send the tasks, by the names that the worker knows
    from tests.interop import celery_app

    celery_app.flaky.delay()
    for number in range(20):
        celery_app.add.delay(number, 1)
    celery_app.add.apply_async((20, 1), countdown=1)
