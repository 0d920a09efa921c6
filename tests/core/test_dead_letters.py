"""Dead letters: dying, redriving, removing by key, one story each (R39, R54)."""

from __future__ import annotations

import pytest

from pillarbox.core import apply, decide
from pillarbox.core import events as e
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.queue import (
    Attempt,
    Death,
    Queue,
    Record,
    Settings,
)
from tests.core import commands as c
from tests.core.scene import START, S, Scene


def test_R39_a_message_dies_at_its_last_failed_delivery_with_reason_and_history() -> None:
    scene = Scene(dead_letters=True, max_deliveries=2)
    scene.send("a")
    (first,) = scene.receive()
    scene.now += S
    scene.do(c.nack([first]))
    scene.now += S
    scene.receive(timeout=4 * S)

    scene.now += 10 * S
    apply.settle(scene.queue, scene.now)

    assert scene.counts == (0, 0, 0)
    assert scene.graves == ["a"]
    extra = scene.records["a"].extra
    assert extra is not None
    assert extra.death == Death("jobs", "expired after 2 deliveries", START + 6 * S, 2)
    assert extra.attempts == (
        Attempt(START, START + S, "nacked"),
        Attempt(START + 2 * S, START + 6 * S, "expired"),
    )
    assert scene.records["a"].deliveries == 2


def test_R39_without_a_dead_letter_queue_nothing_dies() -> None:
    scene = Scene(max_deliveries=1)
    scene.send("a")
    (lease,) = scene.receive()

    scene.do(c.nack([lease]))

    assert scene.line == ["a"]
    extra = scene.records["a"].extra
    assert extra is not None
    assert [attempt.outcome for attempt in extra.attempts] == ["nacked"]


def test_R39_without_max_deliveries_nothing_dies_and_no_history_is_kept() -> None:
    scene = Scene(dead_letters=True)
    scene.send("a")
    for number in range(1, 6):
        (lease,) = scene.receive()
        assert lease.number == number
        scene.do(c.nack([lease]))
    assert scene.graves == []
    assert scene.records["a"].extra is None


def test_R55_as_sqs_does_it_the_first_receive_is_remembered_where_nothing_dies() -> None:
    scene = Scene(dead_letters=True, dead_on_receive=True)
    scene.send("a")
    for _ in range(3):
        scene.do(c.nack(scene.receive()))
    assert scene.graves == []
    extra = scene.records["a"].extra
    assert extra is not None
    assert [attempt.leased_at for attempt in extra.attempts] == [START] * 3


def test_R39_dead_letters_can_be_kept_again() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1)
    target = scene.queue.dead_letters
    assert target is not None
    scene.queue.keep_dead_letters()
    scene.queue.keep_dead_letters()  # twice is as good as once
    assert scene.queue.dead_letters is None
    assert target.sources == []
    scene.send("a")
    scene.do(c.nack(scene.receive()))
    assert scene.line == ["a"]


def test_R39_as_sqs_does_it_a_message_dies_when_it_would_be_delivered_once_more() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1, dead_on_receive=True)
    scene.send("a", "b", "c")
    leases = scene.receive(2)
    scene.do(c.nack(leases))
    assert scene.line == ["c", "a", "b"]

    assert scene.take(1) == ["c"]
    assert scene.graves == []  # it had what it asked for before it came to those

    assert scene.take(1) == []
    assert scene.graves == ["a", "b"]
    extra = scene.records["a"].extra
    assert extra is not None
    assert extra.death == Death("jobs", "delivered 1 times", START, 1)
    assert len(extra.attempts) == 1


def test_R39_as_sqs_does_it_without_a_dead_letter_queue_it_is_delivered() -> None:
    scene = Scene(max_deliveries=1, dead_on_receive=True)
    scene.send("a")
    scene.do(c.nack(scene.receive()))

    assert scene.take() == ["a"]


def test_R39_a_rejected_message_dies_at_once_with_the_reason_given() -> None:
    scene = Scene(dead_letters=True)
    scene.send("a")
    (lease,) = scene.receive()

    scene.do(c.reject([lease], "can't be read"))

    extra = scene.records["a"].extra
    assert extra is not None
    assert extra.death == Death("jobs", "can't be read", START, 1)
    assert extra.attempts == (Attempt(START, START, "rejected"),)
    assert scene.graves == ["a"]
    assert lease.deadline == 0


def test_R39_a_rejected_message_goes_back_where_there_is_no_dead_letter_queue() -> None:
    scene = Scene()
    scene.send("a")

    scene.do(c.reject(scene.receive(), "can't be read"))

    assert scene.line == ["a"]


def test_R39_a_history_has_an_end() -> None:
    scene = Scene(max_deliveries=1)
    scene.send("a")
    for _ in range(102):
        scene.now += 1
        scene.do(c.nack(scene.receive()))

    extra = scene.records["a"].extra
    assert extra is not None
    assert [attempt.leased_at - START for attempt in extra.attempts] == list(range(3, 103))


def test_R39_redriven_messages_are_as_new_in_their_queue() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1)
    scene.send("a", "b", "c")
    scene.do(c.nack(scene.receive(3)))
    assert scene.graves == ["a", "b", "c"]
    scene.now += S

    (event,) = scene.do(c.redrive(scene.keys("a", "c"), scene.queue), to=scene.dead)

    assert [record.body for record in event.records] == ["a", "c"]
    assert event.at == scene.now
    assert scene.graves == ["b"]
    assert scene.line == ["a", "c"]
    record = scene.records["a"]
    assert record.extra is not None
    assert (record.deliveries, record.extra.death) == (0, None)
    assert len(record.extra.attempts) == 1  # its history stays
    assert scene.receive()[0].number == 1


def test_R39_a_redriven_message_stands_behind_those_that_were_there() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1, redelivery="original")
    scene.send("old")
    scene.do(c.nack(scene.receive()))
    scene.send("new")
    scene.now += S
    scene.do(c.redrive(scene.keys("old"), scene.queue), to=scene.dead)

    scene.do(c.release(scene.receive(2)))

    assert scene.line == ["new", "old"]


def test_R39_a_redrive_to_the_same_queue_is_refused() -> None:
    scene = Scene()

    with pytest.raises(InvalidParameterError, match=r"^to must be another queue; got 'jobs'$"):
        scene.do(c.redrive(frozenset(), scene.queue))


def test_R39_dead_letters_never_come_back_to_their_queue() -> None:
    main, dead, third = Queue("main"), Queue("dead"), Queue("third")
    main.send_dead_letters_to(dead)
    dead.send_dead_letters_to(third)
    for target in (main, dead, third):
        with pytest.raises(InvalidParameterError) as caught:
            third.send_dead_letters_to(target)
        assert caught.value.parameter == "dead_letters"
        assert (caught.value.value, caught.value.allowed) == (target.name, "another queue")
    assert (third.dead_letters, third.sources) == (None, [dead])


@pytest.mark.parametrize("on_receive", [False, True])
def test_R39_each_dead_letter_queue_of_a_chain_counts_its_own_deliveries(on_receive: bool) -> None:
    deaths = Settings(2, dead_on_receive=on_receive)
    main, dead, third = (Queue(name, deaths) for name in ("main", "dead", "third"))
    main.send_dead_letters_to(dead)
    dead.send_dead_letters_to(third)
    record = Record(1, b"a")
    apply.apply(main, e.Sent([record]))
    now = 0
    for queue in (main, dead):
        for _ in range(2):
            now += S
            (event,) = decide.deliver(queue, 1, S, now)
            assert isinstance(event, e.Leased)
            apply.apply(queue, event)
            apply.settle(queue, now + S)
        for event in decide.deliver(queue, 1, S, now + S):
            apply.apply(queue, event)
        assert queue.size == 0
    assert third.size == 1
    assert record.deliveries == 4
    assert record.extra is not None
    assert record.extra.death is not None
    assert record.extra.death.source == "dead"


def test_R39_a_queue_may_change_its_dead_letter_queue() -> None:
    main, other, dead, third = (Queue(name) for name in ("main", "other", "dead", "third"))
    main.send_dead_letters_to(dead)
    other.send_dead_letters_to(dead)

    main.send_dead_letters_to(third)

    assert (main.dead_letters, dead.sources, third.sources) == (third, [other], [main])


def test_R39_messages_are_removed_by_key_in_every_state() -> None:
    scene = Scene()
    scene.send("in flight", "ready", "kept")
    scene.send("scheduled", delay=S)
    scene.send("grouped", group="g", priority=3)
    (_, lease) = scene.receive(2)
    assert lease.record.body == "in flight"

    names = ("in flight", "ready", "scheduled", "grouped")
    (event,) = scene.do(c.remove(scene.keys(*names) | {1}))

    assert event.keys == sorted(scene.keys(*names))
    assert scene.counts == (1, 0, 0)
    assert scene.line == ["kept"]
    assert lease.deadline == 0
    assert scene.queue.groups == {}
    assert scene.queue.mask == 1


def test_R39_messages_that_took_their_place_again_are_removed_too() -> None:
    scene = Scene(redelivery="original")
    scene.send("a", "b")
    scene.do(c.nack(scene.receive(2)))

    scene.do(c.remove(scene.keys("a")))
    assert scene.line == ["b"]
    scene.do(c.remove(scene.keys("b")))
    assert (scene.queue.mask, scene.queue.returned, scene.counts) == (0, {}, (0, 0, 0))


def test_R50_groups_freed_by_a_removal_line_up_by_the_age_of_what_was_removed() -> None:
    """In order of the keys, whatever the order in which a set gives them."""
    scene = Scene()
    names = [f"g{i}" for i in range(12)]
    for name in names:
        scene.send(f"{name} first", f"{name} second", group=name)
    for _ in names:
        scene.receive()

    scene.do(c.remove(scene.keys(*(f"{name} first" for name in names))))

    assert scene.line == [f"{name} second" for name in names]


def test_R39_what_sqs_would_deliver_is_leased_as_ever() -> None:
    scene = Scene(dead_letters=True, max_deliveries=2, dead_on_receive=True)
    scene.send("a", group="g")

    (lease,) = scene.receive(1, 7 * S)

    record = scene.records["a"]
    assert (lease.record, lease.number, lease.extra) == (record, 1, record.extra)
    assert lease.extra is not None
    assert (lease.leased_at, lease.deadline, lease.timeout) == (START, START + 7 * S, 7 * S)


def test_R39_a_rejected_message_goes_back_where_nothing_can_die() -> None:
    scene = Scene()
    scene.send("a")
    (lease,) = scene.receive()

    assert scene.do(c.reject([lease], "why")) == [e.Returned(lease, START, "rejected")]
    assert (scene.line, lease.record.deliveries) == (["a"], 1)


def test_R40_every_release_is_counted_apart() -> None:
    scene = Scene()
    scene.send("a")
    for count in range(1, 4):
        scene.do(c.release(scene.receive()))
        extra = scene.records["a"].extra
        assert extra is not None
        assert (extra.releases, scene.records["a"].deliveries) == (count, 0)


def test_R15_after_a_redrive_its_handles_differ_from_all_before() -> None:
    scene = Scene()
    target = Queue("elsewhere")
    scene.send("a", "b")
    scene.do(c.release(scene.receive()))
    scene.do(c.nack(scene.receive(2)))  # "a" was released once and has failed once

    scene.do(c.redrive(scene.keys("a", "b"), target))

    assert [(r.body, r.deliveries, r.extra.releases) for r in target.lanes[0]] == [  # type: ignore[union-attr]
        ("b", 0, 1),
        ("a", 0, 2),
    ]


def test_R39_a_death_in_line_does_not_hold_up_its_group() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1, dead_on_receive=True)
    scene.send("a", "b", group="g")
    scene.do(c.nack(scene.receive(1)))

    assert scene.take(1) == ["b"]
    assert scene.graves == ["a"]
    assert scene.queue.groups["g"].held == 1
