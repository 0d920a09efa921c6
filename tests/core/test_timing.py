"""What is due happens in order, and events that can't be are noticed (R50, R53, R54)."""

from __future__ import annotations

import pytest

from pillarbox.core import apply, decide
from pillarbox.core import events as e
from pillarbox.core.queue import (
    NEVER,
    Lease,
    Record,
    next_deadline,
)
from tests.core import commands as c
from tests.core.scene import START, S, Scene


def test_R53_what_is_due_happens_in_the_order_of_the_times_then_of_sending() -> None:
    scene = Scene()
    scene.send("lease of 3s", "lease of 2s")
    scene.receive(1, 3 * S)
    scene.receive(1, 2 * S)
    scene.send("due after 2s", delay=2 * S)
    scene.send("due after 1s", delay=S)
    assert scene.queue.wake_at == scene.now + S
    scene.now += 5 * S

    events = decide.tick(scene.queue, scene.now)
    assert [type(event).__name__ for event in events] == [
        *("CameDue", "Returned", "CameDue", "Returned")
    ]
    assert apply.settle(scene.queue, scene.now) == events

    assert scene.line == ["due after 1s", "lease of 2s", "due after 2s", "lease of 3s"]
    assert scene.queue.wake_at == NEVER
    assert scene.do(c.tick()) == []


def test_R53_the_next_deadline_is_the_earliest_of_all() -> None:
    scene = Scene()
    assert next_deadline(scene.queue) is None
    scene.send("a", "b")
    scene.send("later", delay=9 * S)
    assert next_deadline(scene.queue) == scene.now + 9 * S

    scene.receive(1, 5 * S)
    assert next_deadline(scene.queue) == scene.now + 5 * S
    scene.receive(1, 7 * S)
    assert next_deadline(scene.queue) == scene.now + 5 * S

    apply.settle(scene.queue, scene.now + 5 * S)
    assert next_deadline(scene.queue) == scene.now + 7 * S == scene.queue.wake_at


def test_R54_a_timeout_leads_back_to_the_line_or_to_the_dead_letters() -> None:
    scene = Scene(dead_letters=True, max_deliveries=2)
    scene.send("a")
    scene.receive(timeout=S)
    scene.now += S
    assert [lease.number for lease in scene.receive(timeout=S)] == [2]
    scene.now += S

    assert scene.take() == []
    assert scene.graves == ["a"]


@pytest.mark.parametrize(
    ("redelivery", "group", "what"),
    [
        ("tail", None, "only the head of a line is leased"),
        ("original", None, "only the head of a line is taken"),
        ("tail", "g", "only the head of a group is taken"),
    ],
)
def test_R50_only_the_head_of_a_line_can_be_taken(
    redelivery: str, group: str | None, what: str
) -> None:
    """Events that don't fit the state are a broken log: they are noticed, not guessed at."""
    scene = Scene(redelivery=redelivery)
    scene.send("a", "b", "c", "d", group=group)
    if redelivery == "original":
        scene.do(c.nack(scene.receive()))

    with pytest.raises(AssertionError) as caught:
        apply.leased(scene.queue, e.Leased([Lease(scene.records["c"], 1, 0, S, S)]))

    assert str(caught.value).splitlines()[0] == what


def test_R50_nothing_dies_without_a_dead_letter_queue() -> None:
    scene = Scene()
    scene.send("a")

    with pytest.raises(AssertionError) as caught:
        apply.died_in_line(scene.queue, e.DiedInLine(scene.records["a"], scene.now, "why"))

    assert str(caught.value).splitlines()[0] == (
        "decide lets nothing die without a dead-letter queue"
    )


def test_R50_a_record_knows_its_defaults() -> None:
    record = Record(7, b"x")

    assert (record.priority, record.deliveries, record.attributes, record.extra) == (
        0,
        0,
        None,
        None,
    )


def test_R93_a_scheduled_message_can_be_given_another_time() -> None:
    scene = Scene()
    scene.send("a", "b", delay=5 * S)
    (key,) = scene.keys("a")
    assert [type(x) for x in scene.do(c.reschedule(key, scene.now + 2 * S))] == [e.Rescheduled]
    assert (scene.queue.wake_at, scene.counts) == (scene.now + 2 * S, (0, 2, 0))

    scene.now += 2 * S
    assert scene.take(9) == ["a"]
    assert scene.do(c.reschedule(key, scene.now + S)) == [], "it is no longer scheduled"

    scene.now += 3 * S
    assert scene.take(9) == ["b"]


def test_R93_a_later_time_is_not_cut_short_by_the_old_one() -> None:
    scene = Scene()
    scene.send("a", delay=S)
    (key,) = scene.keys("a")
    scene.do(c.reschedule(key, scene.now + 9 * S))
    scene.do(c.reschedule(key, scene.now + S))
    scene.do(c.reschedule(key, scene.now + 3 * S))

    scene.now += 3 * S - 1
    assert scene.take() == []
    scene.now += 1
    assert scene.take() == ["a"]


def test_R93_forcing_puts_what_is_scheduled_into_the_line_in_the_order_of_its_times() -> None:
    scene = Scene()
    scene.send("last", delay=9 * S)
    scene.send("first", delay=S)
    scene.send("second, sent later", delay=S)

    assert len(scene.do(c.force())) == 3

    assert scene.line == ["first", "second, sent later", "last"]
    assert scene.do(c.force()) == []


def test_R93_what_is_forced_comes_due_now() -> None:
    scene = Scene()
    scene.send("a", "b", delay=9 * S)
    scene.now += S

    a, b = scene.records["a"], scene.records["b"]
    assert scene.do(c.force()) == [e.CameDue(a, START + S), e.CameDue(b, START + S)]
    assert (scene.line, scene.counts) == (["a", "b"], (2, 0, 0))


def test_R150_visibility_can_be_changed_whoever_holds_the_message() -> None:
    scene = Scene()
    scene.send("a", "b")
    (key,) = scene.keys("a")
    assert scene.do(c.change_visibility(key, 0)) == [], "it can be received already"
    assert [type(x) for x in scene.do(c.change_visibility(key, 2 * S))] == [e.Hidden]
    assert (scene.queue.wake_at, scene.counts) == (scene.now + 2 * S, (1, 0, 1))
    assert scene.take(9) == ["b"]

    scene.now += S
    scene.do(c.change_visibility(key, 5 * S))
    scene.now += 4 * S
    assert scene.take(9) == []
    scene.do(c.change_visibility(key, 0))
    assert scene.take(9) == ["a"]
    lease = scene.queue.leases.find(key)
    assert lease is not None
    assert lease.number == 1, "being hidden is no delivery"


def test_R150_a_scheduled_message_takes_the_new_time_and_an_unknown_one_none() -> None:
    scene = Scene()
    scene.send("a", delay=S)
    (key,) = scene.keys("a")
    scene.do(c.change_visibility(key, 3 * S))
    scene.now += 2 * S
    assert scene.take(9) == []
    scene.now += S
    assert scene.take(9) == ["a"]
    assert scene.do(c.change_visibility(key + 1, S)) == []
