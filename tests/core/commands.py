"""What can be asked of a queue, for `Scene.do`: each is a decision that waits for its time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import compress
from typing import Any

from pillarbox.core import decide
from pillarbox.core import events as e
from pillarbox.core.queue import Lease, Queue, Record

Command = Callable[[Queue, int], list[Any]]


def _living(leases: Sequence[Lease], now: int) -> list[Lease]:
    return list(compress(leases, decide.live(leases, now)))


def send(records: list[Record], delay: int = 0) -> Command:
    def ask(queue: Queue, now: int) -> list[Any]:
        fresh = decide.send(queue, records, now)
        event = e.Scheduled(fresh, now + delay) if delay else e.Sent(fresh)
        return [event] if fresh else []

    return ask


def receive(count: int, timeout: int) -> Command:
    return lambda queue, now: decide.deliver(queue, count, timeout, now)


def acknowledge(leases: Sequence[Lease]) -> Command:
    def ask(queue: Queue, now: int) -> list[Any]:
        living = _living(leases, now)
        return [e.Acknowledged(living)] if living else []

    return ask


def nack(leases: Sequence[Lease], delay: int = 0) -> Command:
    return lambda queue, now: decide.nack(queue, _living(leases, now), delay, now)


def release(leases: Sequence[Lease], to_front: bool = False) -> Command:
    return lambda _, now: [e.Released(lease, to_front) for lease in _living(leases, now)]


def extend(leases: Sequence[Lease], timeout: int) -> Command:
    return lambda _, now: [
        e.Extended(lease, now + timeout, timeout) for lease in _living(leases, now)
    ]


def reject(leases: Sequence[Lease], reason: str) -> Command:
    return lambda queue, now: decide.reject(queue, _living(leases, now), reason, now)


def redrive(keys: Collection[int], target: Queue) -> Command:
    return lambda queue, now: [decide.redrive(queue, keys, target, now)]


def remove(keys: Collection[int]) -> Command:
    return lambda queue, _: [decide.remove(queue, keys)]


def reschedule(key: int, due: int) -> Command:
    return lambda queue, _: list(decide.reschedule(queue, key, due))


def change_visibility(key: int, timeout: int) -> Command:
    return lambda queue, now: decide.change_visibility(queue, key, timeout, now)


def force() -> Command:
    return lambda queue, now: list(decide.force(queue, now))


def purge() -> Command:
    return lambda _, __: [e.Purged()]


def tick() -> Command:
    return lambda queue, now: list(decide.tick(queue, now))
