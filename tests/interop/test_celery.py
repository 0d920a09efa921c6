"""Celery with `sqs://`: a real worker process takes its tasks from our broker."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import boto3

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def test_R55_a_celery_worker_does_its_tasks(environment: dict[str, str], tmp_path: Path) -> None:
    notes, log = tmp_path / "notes", tmp_path / "log"
    notes.touch()
    environment = {**environment, "CELERY_LIST": str(notes)}
    celery = [sys.executable, "-m", "celery", "-A", "tests.interop.celery_app"]
    with log.open("w") as output:
        worker = subprocess.Popen(
            [*celery, "worker", "--pool", "solo", "--without-gossip", "--without-mingle"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        subprocess.run(
            [sys.executable, "-m", "tests.interop.celery_app"],
            cwd=ROOT,
            env=environment,
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        expected = sorted(["failed", "succeeded", *(f"{n}+1={n + 1}" for n in range(21))])
        wait_until(
            lambda: sorted(notes.read_text().split()) == expected,
            f"notes: {notes.read_text()!r}, log: {log.read_text()}",
        )
        queue_is_empty(environment["ENDPOINT"])
    finally:
        worker.send_signal(signal.SIGTERM)
        ended = worker.wait(PATIENCE_SECONDS)
    assert ended == 0, log.read_text()


def queue_is_empty(endpoint: str) -> None:
    """Every task was acknowledged, which in SQS's words is deleted."""
    sqs = boto3.Session().client("sqs", endpoint_url=endpoint)
    url = sqs.get_queue_url(QueueName="celery-interop")["QueueUrl"]

    def left() -> int:
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return sum(int(text) for name, text in found.items() if name.startswith("Approximate"))

    wait_until(lambda: left() == 0, "tasks are left in the queue")
