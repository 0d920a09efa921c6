"""rq; run as a program it is one worker."""

from __future__ import annotations

import os

import redis
from rq import Queue, SimpleWorker

queue = Queue(connection=redis.Redis.from_url(os.environ["BENCH_URL"]))


def noop(number: int) -> None:
    pass


if __name__ == "__main__":
    SimpleWorker([queue], connection=queue.connection).work(logging_level="ERROR")
