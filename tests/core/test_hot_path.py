"""The hot path does what `decide` and `apply` do, or leaves it to them (R50)."""

from __future__ import annotations

import pytest

from pillarbox.core import apply, decide, hot
from pillarbox.core import commands as c
from pillarbox.core.queue import (
    NEVER,
    Queue,
)
from tests.core.scene import START, S, Scene


def test_R50_a_lease_keeps_what_it_saw_of_its_message() -> None:
    """However it was leased, and whatever becomes of the message afterwards."""
    for dead_on_receive in (False, True):
        scene = Scene(dead_letters=True, max_deliveries=3, dead_on_receive=dead_on_receive)
        scene.send("a", "b", deduplication=None)
        scene.do(c.Nack(scene.receive(2)))
        (lease,) = scene.receive()
        quick = hot.receive(scene.queue, 30 * S, scene.now)
        assert quick is not None

        scene.do(c.Nack([lease, quick]))

        for each in (lease, quick):
            assert each.extra is not None
            assert each.record.extra is not None
            assert (len(each.extra.attempts), len(each.record.extra.attempts)) == (1, 2)


def test_R50_the_hot_path_sends_receives_and_acknowledges_a_plain_message() -> None:
    queue = Queue("jobs")
    assert hot.receive(queue, S, START) is None
    hot.send(queue, 7, b"a")
    hot.send(queue, 8, b"b")
    assert (queue.mask, queue.size) == (1, 2)
    assert hot.receive(queue, S, START) is None  # no lease had this timeout yet: ask `decide`
    apply.leased(queue, decide.receive(queue, 1, S, START))

    lease = hot.receive(queue, S, START + 1)

    assert lease is not None
    assert (lease.record.key, lease.record.body, lease.number) == (8, b"b", 1)
    assert (lease.leased_at, lease.deadline, lease.timeout) == (START + 1, START + 1 + S, S)
    assert (queue.mask, queue.in_flight, queue.wake_at) == (0, 2, START + S)
    assert hot.receive(queue, S, START) is None
    assert hot.acknowledge(queue, lease)
    assert (lease.deadline, queue.in_flight) == (0, 1)


def test_R50_the_hot_path_wakes_the_queue_for_the_earliest_deadline() -> None:
    scene = Scene()
    scene.send("a", "b", "c")
    scene.receive(1, 5 * S)
    scene.receive(1, 9 * S)
    scene.queue.wake_at = NEVER

    lease = hot.receive(scene.queue, 9 * S, scene.now)

    assert lease is not None
    assert scene.queue.wake_at == lease.deadline


@pytest.mark.parametrize("why", ["a group", "a returned message", "nothing"])
def test_R50_the_hot_path_leaves_what_is_not_plain_to_decide(why: str) -> None:
    scene = Scene(redelivery="original")
    scene.send("lease", "a", "back")
    (lease,) = scene.receive(1, S)
    (back,) = scene.do(c.Receive(1, S))[0].leases
    if why == "a group":
        scene.send("grouped", group="g")
    elif why == "a returned message":
        scene.do(c.Nack([back]))

    got = hot.receive(scene.queue, S, scene.now)

    assert (got is not None) == (why == "nothing")
    assert hot.acknowledge(scene.queue, lease) == (why != "a group")


def test_R17_the_hot_path_takes_the_highest_priority_first() -> None:
    scene = Scene()
    scene.send("lease")
    scene.receive(1, S)
    for body, priority in (("low", 0), ("high", 9), ("higher", 255), ("high, too", 9)):
        scene.send(body, priority=priority)
    queue = scene.queue
    taken = []
    while (lease := hot.receive(queue, S, scene.now)) is not None:
        taken.append((lease.record.body, queue.mask))
    masks = [1 << 9 | 1, 1 << 9 | 1, 1, 0]
    assert taken == list(zip(["higher", "high", "high, too", "low"], masks, strict=True))


def test_R50_the_hot_path_leaves_an_unusual_lease_to_apply() -> None:
    scene = Scene()
    scene.send(*map(str, range(9)))
    leases = [scene.receive(1, (i + 1) * S)[0] for i in range(9)]

    assert not hot.acknowledge(scene.queue, leases[8])
    assert leases[8].deadline > 0
    assert hot.acknowledge(scene.queue, leases[0])
