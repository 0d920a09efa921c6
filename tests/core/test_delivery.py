"""Sending, receiving and what a receipt is good for, one story each (R1-R18, R22, R40)."""

from __future__ import annotations

import msgspec
import pytest

from pillarbox.core import decide
from pillarbox.core import events as e
from pillarbox.core.errors import MailboxFullError
from pillarbox.core.queue import (
    NEVER,
    Settings,
    next_deadline,
)
from tests.core import commands as c
from tests.core.scene import S, Scene


def test_R1_a_delayed_message_is_not_received_before_its_time() -> None:
    scene = Scene()
    scene.send("later", delay=5 * S)
    assert scene.counts == (0, 1, 0)

    scene.now += 5 * S - 1
    assert scene.take() == []

    scene.now += 1
    assert scene.take() == ["later"]
    assert scene.counts == (0, 0, 1)


def test_R2_a_receive_from_an_empty_queue_is_no_event() -> None:
    assert Scene().do(c.receive(10, S)) == []


def test_R2_a_receive_takes_at_most_as_many_as_asked() -> None:
    scene = Scene()
    scene.send("a", "b", "c")

    assert scene.take(2) == ["a", "b"]
    assert scene.take(2) == ["c"]
    assert scene.queue.mask == 0


@pytest.mark.parametrize("dead_on_receive", [False, True])
def test_R59_a_paused_queue_takes_messages_and_delivers_none(dead_on_receive: bool) -> None:
    scene = Scene(dead_letters=True, max_deliveries=1, dead_on_receive=dead_on_receive)
    scene.send("held")
    (held,) = scene.receive()
    scene.queue.settings = msgspec.structs.replace(scene.queue.settings, paused=True)
    scene.send("a", "b")

    assert scene.do(c.receive(10, S)) == []
    assert scene.do(c.acknowledge([held])) == [e.Acknowledged([held])]
    assert scene.counts == (2, 0, 0)

    scene.queue.settings = msgspec.structs.replace(scene.queue.settings, paused=False)
    assert scene.take(10) == ["a", "b"]


def test_R3_a_purge_removes_everything_in_every_state() -> None:
    scene = Scene()
    scene.send("x", deduplication="once")
    scene.send("ready", "in flight")
    scene.send("grouped", group="g")
    scene.send("scheduled", delay=S)
    (lease,) = scene.receive()

    assert scene.do(c.purge()) == [e.Purged()]

    assert scene.counts == (0, 0, 0)
    assert lease.deadline == 0
    assert scene.queue.wake_at == NEVER
    assert next_deadline(scene.queue) is None
    assert scene.queue.groups == {}
    assert scene.send("x", deduplication="once") == ["x"]  # nor does it know duplicates


def test_R6_an_acknowledged_message_is_gone_from_every_index() -> None:
    scene = Scene()
    scene.send("a")
    (lease,) = scene.receive()

    assert scene.do(c.acknowledge([lease])) == [e.Acknowledged([lease])]

    assert scene.counts == (0, 0, 0)
    assert scene.queue.leases.find(lease.record.key) is None
    scene.now += 60 * S
    assert scene.take() == []


def test_R6_a_second_acknowledge_does_nothing() -> None:
    scene = Scene()
    scene.send("a", "b")
    leases = scene.receive(2)
    scene.do(c.acknowledge(leases[:1]))

    assert scene.do(c.acknowledge(leases[:1])) == []
    assert scene.do(c.acknowledge([])) == []
    assert scene.counts == (0, 0, 1)


def test_R7_a_nack_makes_it_visible_now_or_after_a_delay() -> None:
    scene = Scene()
    scene.send("now", "later")
    now, later = scene.receive(2)

    scene.do(c.nack([now]))
    scene.do(c.nack([later], delay=3 * S))

    assert scene.counts == (1, 1, 0)
    assert scene.queue.wake_at == scene.now + 3 * S
    assert scene.take(2) == ["now"]
    scene.now += 3 * S
    assert scene.take(2) == ["later"]


def test_R7_after_a_nack_the_old_receipt_is_dead() -> None:
    scene = Scene()
    scene.send("a")
    (old,) = scene.receive()
    scene.do(c.nack([old], delay=S))

    assert decide.live([old], scene.now) == [False]
    scene.now += S
    (new,) = scene.receive()
    assert decide.live([old, new], scene.now) == [False, True]


def test_R8_an_extension_counts_from_now_and_may_shorten() -> None:
    scene = Scene()
    scene.send("a")
    (lease,) = scene.receive(timeout=30 * S)

    scene.now += 10 * S
    scene.do(c.extend([lease], 5 * S))
    assert lease.deadline == scene.now + 5 * S
    assert scene.queue.wake_at == lease.deadline
    assert next_deadline(scene.queue) == lease.deadline

    scene.do(c.extend([lease], 60 * S))
    scene.now += 60 * S - 1
    assert scene.counts == (0, 0, 1)
    assert scene.take() == []
    scene.now += 1
    assert scene.take() == ["a"]


def test_R8_an_extension_never_revives() -> None:
    scene = Scene()
    scene.send("a")
    (lease,) = scene.receive(timeout=S)

    scene.now += S

    assert scene.do(c.extend([lease], 60 * S)) == []
    assert scene.take() == ["a"]


def test_R15_a_receipt_lives_until_just_before_its_deadline() -> None:
    scene = Scene()
    scene.send("a")
    (lease,) = scene.receive(timeout=S)

    assert decide.live([lease], scene.now + S - 1) == [True]
    assert decide.live([lease], scene.now + S) == [False]


def test_R15_a_stale_and_a_live_receipt_of_one_message_in_one_batch() -> None:
    scene = Scene()
    scene.send("a")
    (stale,) = scene.receive(timeout=S)
    scene.now += S
    (live,) = scene.receive()

    assert decide.live([stale, live], scene.now) == [False, True]
    assert decide.live([live, stale], scene.now) == [True, False]
    scene.do(c.acknowledge([stale, live]))
    assert scene.counts == (0, 0, 0)


def test_R15_a_receipt_named_twice_in_a_batch_counts_once() -> None:
    scene = Scene()
    scene.send("a", "b")
    a, b = scene.receive(2)

    assert decide.live([a, b, a, a], scene.now) == [True, True, False, False]
    assert decide.live([], scene.now) == []
    scene.do(c.acknowledge([a, a]))
    assert scene.counts == (0, 0, 1)


def test_R15_a_zero_timeout_is_over_at_once() -> None:
    scene = Scene()
    scene.send("a")
    (lease,) = scene.receive(timeout=0)

    assert decide.live([lease], scene.now) == [False]
    assert scene.queue.wake_at == scene.now
    assert scene.take() == ["a"]


def test_R16_a_redelivered_message_goes_to_the_tail() -> None:
    scene = Scene()
    scene.send("a", "b", "c")
    leases = scene.receive(2)

    scene.do(c.nack(leases))

    assert scene.line == ["c", "a", "b"]


def test_R16_original_redelivery_keeps_the_place() -> None:
    scene = Scene(redelivery="original")
    scene.send("a", "b", "c", "d")
    a, b, _ = scene.receive(3)

    scene.do(c.nack([b]))
    scene.do(c.nack([a]))

    assert scene.line == ["a", "b", "d"]
    assert scene.counts == (3, 0, 1)
    assert scene.take(3) == ["a", "b", "d"]
    assert (scene.queue.mask, scene.queue.returned) == (0, {})


def test_R16_the_place_of_a_delayed_message_is_when_it_came_due() -> None:
    scene = Scene(redelivery="original")
    scene.send("delayed", delay=5 * S)
    scene.send("first")
    scene.now += 6 * S
    scene.send("last")
    assert scene.line == ["first", "delayed", "last"]

    leases = scene.receive(3)
    scene.do(c.nack(list(reversed(leases))))

    assert scene.line == ["first", "delayed", "last"]


def test_R16_a_message_given_back_with_a_delay_keeps_its_place_too() -> None:
    scene = Scene(redelivery="original")
    scene.send("a", "b")
    (a,) = scene.receive()

    scene.do(c.nack([a], delay=S))
    scene.now += S

    assert scene.take(2) == ["a", "b"]


def test_R17_the_higher_priority_is_first_and_fifo_inside() -> None:
    scene = Scene()
    for name, priority in (("low", 0), ("high", 255), ("mid", 7), ("high2", 255)):
        scene.send(name, priority=priority)

    assert scene.line == ["high", "high2", "mid", "low"]
    assert scene.take(3) == ["high", "high2", "mid"]
    assert scene.queue.mask == 1


def test_R18_deliveries_are_counted_from_one() -> None:
    scene = Scene()
    scene.send("a")

    for number in (1, 2, 3):
        (lease,) = scene.receive()
        assert lease.number == number
        scene.do(c.nack([lease]))


def test_R40_a_release_counts_nothing_and_goes_to_the_tail_or_to_the_front() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1)
    scene.send("a", "b")
    (a,) = scene.receive()

    scene.do(c.release([a]))
    assert scene.line == ["b", "a"]

    (b,) = scene.receive()
    scene.do(c.release([b], to_front=True))
    assert scene.line == ["b", "a"]
    extra = scene.records["b"].extra
    assert extra is not None
    assert (extra.attempts, extra.releases) == ((), 1)
    assert a.extra is None  # a lease keeps what it saw
    assert scene.receive()[0].number == 1


def test_R22_a_full_queue_takes_all_of_a_batch_or_nothing() -> None:
    scene = Scene(capacity=3)
    scene.send("a", "b")

    with pytest.raises(MailboxFullError) as caught:
        scene.send("c", "d")

    assert str(caught.value) == (
        "mailbox 'jobs' holds 2 of 3 messages and can't take 2 more: "
        "receive and acknowledge some, or raise its capacity"
    )
    assert scene.counts == (2, 0, 0)
    assert scene.send("e") == ["e"]


def test_R22_what_is_scheduled_or_in_flight_takes_room_and_large_numbers_are_readable() -> None:
    scene = Scene(capacity=2_000)
    scene.send(*map(str, range(1_000)), delay=S)
    scene.send(*map(str, range(1_000)))
    scene.receive(500)

    with pytest.raises(MailboxFullError, match=r"holds 2,000 of 2,000 .* take 1,200 more"):
        scene.send(*map(str, range(1_200)))


def test_R22_a_repetition_needs_no_room() -> None:
    """Found by the model test: dead letters may overfill a queue, which then refused it."""
    scene = Scene(capacity=1)
    scene.send("a", deduplication="x")
    scene.queue.settings = Settings(capacity=0)

    assert scene.send("again", deduplication="x") == []
