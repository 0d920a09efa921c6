"""MessageRetentionPeriod: deletes messages that were not received in time.

Lines are nearly sorted by age, so expired messages are at their heads. Messages that joined a
line out of order, and scheduled ones, are scanned periodically, a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pillarbox.core.events import Removed
from pillarbox.core.lane import Lane
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.lines import find
from pillarbox.core.queue import NEVER, Lease, Queue, Record, oldest_key
from pillarbox.mailbox.queue_steps import SLICE

if TYPE_CHECKING:
    from pillarbox.broker.local_queue import LocalQueue
    from pillarbox.broker.server import Broker

_AGAIN_NS: Final = 5 * SECOND_NS  # minimum interval between visits of a queue,
_STRAYS_NS: Final = 60 * SECOND_NS  # if it has messages out of order or scheduled,
_LATEST_NS: Final = 3_600 * SECOND_NS  # and the maximum


def lease_fresh(broker: Broker, queue: LocalQueue, count: int, timeout_ns: int) -> Sequence[Lease]:
    """Lease ready messages, and delete those that have expired."""
    while leases := queue.session.receive(broker, count, timeout_ns, 0):
        if queue.retention_ns == NEVER:
            return leases
        latest = leases[0].leased_at - queue.retention_ns
        fresh = [lease for lease in leases if born(lease.record) > latest]
        if len(fresh) < len(leases):
            _delete_leased(queue, {lease.record.key for lease in leases if lease not in fresh})
            _delete_heads(queue)
        if fresh:
            return fresh
    return ()


def _delete_leased(queue: LocalQueue, keys: set[int]) -> None:
    def decide_events(state: Queue, now: int) -> list[Removed]:
        queue.session.totals.received -= len(keys)  # they are not delivered
        return [Removed(sorted(keys), expired=True)]

    queue.session.step(decide_events)


def sweep(queue: LocalQueue) -> Iterator[int]:
    """Delete expired messages that are not in flight; yield how many each step deleted."""
    while count := _delete_heads(queue):
        yield count
    with queue.session.store.lock:
        state = queue.session.queue
        keys = iter([*state.out_of_order, *state.schedule.keys()])
    while some := list(islice(keys, SLICE)):
        yield _delete_strays(queue, some)


def next_look(queue: LocalQueue) -> int:
    """Return when a message of this queue may expire next."""
    with queue.session.store.lock:
        state, now = queue.session.queue, queue.session.store.clock.now()
        oldest = oldest_key(state)
        hidden = bool(state.out_of_order) or bool(state.scheduled) or bool(state.in_flight)
    at = (now if oldest is None else oldest << 1) + queue.retention_ns
    return max(now + _AGAIN_NS, min(at, now + (_STRAYS_NS if hidden else _LATEST_NS)))


def born(record: Record) -> int:
    """Return when a message was sent or, if it was redriven, when that was."""
    extra = record.extra
    if extra is None or extra.death is not None or not extra.place or not extra.releases:
        return record.key << 1
    return extra.place << 1


def _delete_heads(queue: LocalQueue) -> int:
    def expired(state: Queue, latest: int) -> list[int]:
        old: list[int] = []
        lines: list[Lane[Any]] = [*state.lanes.values(), *state.returned.values()]
        for line in lines:
            for item in islice(line, SLICE - len(old)):
                if item.__class__ is not Record or born(item) > latest:
                    break
                old.append(item.key)
        return old

    return _delete(queue, expired)


def _delete_strays(queue: LocalQueue, keys: Sequence[int]) -> int:
    def expired(state: Queue, latest: int) -> list[int]:
        found = (find(state, key) or state.schedule.find(key) for key in keys)
        return [each.key for each in found if each is not None and born(each) <= latest]

    return _delete(queue, expired)


def _delete(queue: LocalQueue, expired: Callable[[Queue, int], list[int]]) -> int:
    """Delete the messages that `expired` returns, and return how many that were."""

    def decide_events(state: Queue, now: int) -> list[Removed]:
        keys = expired(state, now - queue.retention_ns)
        return [Removed(keys, expired=True)] if keys else []

    return sum(len(event.keys) for event in queue.session.step(decide_events))
