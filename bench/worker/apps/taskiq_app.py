"""taskiq, on the one of its Redis brokers that acknowledges."""

from __future__ import annotations

import os

from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(os.environ["BENCH_URL"])


@broker.task
async def noop(number: int) -> None:
    pass
