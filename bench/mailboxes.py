"""What the races of mailboxes on Redis and on PostgreSQL have in common.

A `Cycle` puts n messages in, takes them, and acknowledges them if it can; a contestant without
batches does it n times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import dramatiq

from pillarbox import Mailbox
from pillarbox.testing.redis import until

BODY = "an order for two pillar boxes, red. ".ljust(200, ".")
QUEUE = "bench"

Cycle = Callable[[int], object]


def repeat(cycle: Cycle, size: int, messages: int) -> None:
    for _ in range(max(1, messages // size)):
        cycle(size)


def mailbox_cycle(box: Mailbox[str], wait_seconds: float = 0) -> Cycle:
    """Of our own mailboxes; who races with itself must wait, since another may be quicker."""

    def cycle(count: int) -> None:
        if count == 1:
            box.send(BODY)
            (message,) = box.receive(wait_time_seconds=wait_seconds)
            message.acknowledge()
            return
        box.send_many([BODY] * count)
        messages = box.receive(max_messages=count)
        assert len(messages) == count
        box.acknowledge_many(messages)

    return cycle


def dramatiq_cycle(broker: Any, timeout_ms: int = 1_000) -> Cycle:
    """Of a broker of dramatiq, for its actors' queue."""
    broker.declare_queue(QUEUE)
    consumers: dict[int, Any] = {}

    def cycle(count: int) -> None:
        if count not in consumers:
            consumers[count] = broker.consume(QUEUE, prefetch=count, timeout=timeout_ms)
        for _ in range(count):
            broker.enqueue(dramatiq.Message(QUEUE, "work", (BODY,), {}, {}))
        done = 0
        while done < count:
            message = next(consumers[count])
            if message is not None:
                consumers[count].ack(message)
                done += 1

    return cycle


def measure_waking(
    box: Mailbox[str], is_parked: Callable[[], bool], times: int
) -> dict[str, float]:
    """Milliseconds from a send until a receiver that waited for it has the message."""
    took: list[float] = []
    woken: list[float] = []

    def sleep() -> None:
        for _ in range(times):
            (message,) = box.receive(wait_time_seconds=60)
            woken.append(perf_counter())
            message.acknowledge()

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    for number in range(times):
        until(lambda n=number: len(woken) == n and is_parked(), "it sleeps")
        start = perf_counter()
        box.send(BODY)
        until(lambda n=number: len(woken) > n, "it is awake")
        took.append((woken[-1] - start) * 1_000)
    sleeper.join()
    took.sort()
    return {"p50_ms": median(took), "p99_ms": took[min(len(took) - 1, len(took) * 99 // 100)]}
