"""R51: what a snapshot has of a queue is as it was when the store's lock was held."""

from __future__ import annotations

from pillarbox.core import apply, decide
from pillarbox.core.events import Acknowledged, Extended, Leased, Returned, Scheduled, Sent
from pillarbox.core.queue import Lease, Queue, Record, Settings
from pillarbox.mailbox import snapshot

SECOND = 10**9


def crowd() -> tuple[Queue, list[Lease]]:
    """Messages in line and scheduled, leases that run, were extended and are over."""
    queue = Queue("orders", Settings(max_deliveries=9))
    apply.apply(queue, Sent([Record(key, key) for key in range(1, 9)]))
    apply.apply(queue, Scheduled([Record(key, key) for key in range(9, 12)], 5 * SECOND))
    (event,) = decide.deliver(queue, 6, 60 * SECOND, SECOND)
    assert isinstance(event, Leased)
    apply.apply(queue, event)
    leases = event.leases
    apply.apply(queue, Extended(leases[0], 90 * SECOND, 90 * SECOND))
    apply.apply(queue, Returned(leases[1], SECOND, outcome="nacked"))
    apply.apply(queue, Acknowledged([leases[2]]))
    return queue, list(leases)


def encoded(captured: snapshot.QueueState) -> bytes:
    return snapshot.encode(snapshot.StoreState(0, "prefix", b"", 0, 0, [captured]))


def test_R51_what_happens_after_the_capture_is_not_in_the_snapshot() -> None:
    queue, leases = crowd()
    before = encoded(snapshot.capture(queue, 1))
    captured = snapshot.capture(queue, 1)
    apply.apply(queue, Acknowledged([leases[3]]))
    apply.apply(queue, Extended(leases[4], 99 * SECOND, 98 * SECOND))
    apply.apply(queue, Returned(leases[5], 2 * SECOND, outcome="expired"))
    apply.apply(queue, Returned(leases[0], 2 * SECOND, outcome="nacked"))
    for event in decide.tick(queue, 6 * SECOND):
        apply.apply(queue, event)
    assert encoded(snapshot.capture(queue, 1)) != before
    assert encoded(captured) == before
    restored = Queue("orders")
    snapshot.restore(snapshot.decode(before).queues[0], restored)
    assert (restored.ready, restored.scheduled, restored.in_flight) == (3, 3, 4)
