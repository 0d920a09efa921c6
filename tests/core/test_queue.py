"""The rules of a queue, one story each, told to `decide` and `apply` (A, R39, R40, R50-R55)."""

from __future__ import annotations

import pytest

from pillarbox.core import apply, decide, hot
from pillarbox.core import commands as c
from pillarbox.core import events as e
from pillarbox.core.errors import InvalidParameterError, MailboxFullError
from pillarbox.core.queue import (
    NEVER,
    Attempt,
    Death,
    Lease,
    Queue,
    Record,
    Settings,
    next_deadline,
    oldest_key,
)
from tests.core.scene import START, S, Scene, bodies

# A: sending and receiving


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
    assert Scene().do(c.Receive(10, S)) == []


def test_R2_a_receive_takes_at_most_as_many_as_asked() -> None:
    scene = Scene()
    scene.send("a", "b", "c")

    assert scene.take(2) == ["a", "b"]
    assert scene.take(2) == ["c"]
    assert scene.queue.mask == 0


def test_R3_a_purge_removes_everything_in_every_state() -> None:
    scene = Scene()
    scene.send("x", deduplication="once")
    scene.send("ready", "in flight")
    scene.send("grouped", group="g")
    scene.send("scheduled", delay=S)
    (lease,) = scene.receive()

    assert scene.do(c.Purge()) == [e.Purged()]

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

    assert scene.do(c.Acknowledge([lease])) == [e.Acknowledged([lease])]

    assert scene.counts == (0, 0, 0)
    assert scene.queue.leases.find(lease.record.key) is None
    scene.now += 60 * S
    assert scene.take() == []


def test_R6_a_second_acknowledge_does_nothing() -> None:
    scene = Scene()
    scene.send("a", "b")
    leases = scene.receive(2)
    scene.do(c.Acknowledge(leases[:1]))

    assert scene.do(c.Acknowledge(leases[:1])) == []
    assert scene.do(c.Acknowledge([])) == []
    assert scene.counts == (0, 0, 1)


def test_R7_a_nack_makes_it_visible_now_or_after_a_delay() -> None:
    scene = Scene()
    scene.send("now", "later")
    now, later = scene.receive(2)

    scene.do(c.Nack([now]))
    scene.do(c.Nack([later], delay=3 * S))

    assert scene.counts == (1, 1, 0)
    assert scene.queue.wake_at == scene.now + 3 * S
    assert scene.take(2) == ["now"]
    scene.now += 3 * S
    assert scene.take(2) == ["later"]


def test_R7_after_a_nack_the_old_receipt_is_dead() -> None:
    scene = Scene()
    scene.send("a")
    (old,) = scene.receive()
    scene.do(c.Nack([old], delay=S))

    assert decide.live([old], scene.now) == [False]
    scene.now += S
    (new,) = scene.receive()
    assert decide.live([old, new], scene.now) == [False, True]


def test_R8_an_extension_counts_from_now_and_may_shorten() -> None:
    scene = Scene()
    scene.send("a")
    (lease,) = scene.receive(timeout=30 * S)

    scene.now += 10 * S
    scene.do(c.Extend([lease], 5 * S))
    assert lease.deadline == scene.now + 5 * S
    assert scene.queue.wake_at == lease.deadline
    assert next_deadline(scene.queue) == lease.deadline

    scene.do(c.Extend([lease], 60 * S))
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

    assert scene.do(c.Extend([lease], 60 * S)) == []
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
    scene.do(c.Acknowledge([stale, live]))
    assert scene.counts == (0, 0, 0)


def test_R15_a_receipt_named_twice_in_a_batch_counts_once() -> None:
    scene = Scene()
    scene.send("a", "b")
    a, b = scene.receive(2)

    assert decide.live([a, b, a, a], scene.now) == [True, True, False, False]
    assert decide.live([], scene.now) == []
    scene.do(c.Acknowledge([a, a]))
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

    scene.do(c.Nack(leases))

    assert scene.line == ["c", "a", "b"]


def test_R16_original_redelivery_keeps_the_place() -> None:
    scene = Scene(redelivery="original")
    scene.send("a", "b", "c", "d")
    a, b, _ = scene.receive(3)

    scene.do(c.Nack([b]))
    scene.do(c.Nack([a]))

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
    scene.do(c.Nack(list(reversed(leases))))

    assert scene.line == ["first", "delayed", "last"]


def test_R16_a_message_given_back_with_a_delay_keeps_its_place_too() -> None:
    scene = Scene(redelivery="original")
    scene.send("a", "b")
    (a,) = scene.receive()

    scene.do(c.Nack([a], delay=S))
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
        scene.do(c.Nack([lease]))


def test_R40_a_release_counts_nothing_and_goes_to_the_tail_or_to_the_front() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1)
    scene.send("a", "b")
    (a,) = scene.receive()

    scene.do(c.Release([a]))
    assert scene.line == ["b", "a"]

    (b,) = scene.receive()
    scene.do(c.Release([b], to_front=True))
    assert scene.line == ["b", "a"]
    extra = scene.records["b"].extra
    assert extra is not None
    assert (extra.attempts, extra.releases) == ((), 1)
    assert a.extra is None  # a lease keeps what it saw
    assert scene.receive()[0].number == 1


# Dead letters


def test_R39_a_message_dies_at_its_last_failed_delivery_with_reason_and_history() -> None:
    scene = Scene(dead_letters=True, max_deliveries=2)
    scene.send("a")
    (first,) = scene.receive()
    scene.now += S
    scene.do(c.Nack([first]))
    scene.now += S
    scene.receive(timeout=4 * S)

    scene.now += 10 * S
    apply.settle(scene.queue, scene.now)

    assert scene.counts == (0, 0, 0)
    assert scene.graves == ["a"]
    extra = scene.records["a"].extra
    assert extra is not None
    assert extra.death == Death("jobs", "expired after 2 deliveries", START + 6 * S)
    assert extra.attempts == (
        Attempt(START, START + S, "nacked"),
        Attempt(START + 2 * S, START + 6 * S, "expired"),
    )
    assert scene.records["a"].deliveries == 2


def test_R39_without_a_dead_letter_queue_nothing_dies() -> None:
    scene = Scene(max_deliveries=1)
    scene.send("a")
    (lease,) = scene.receive()

    scene.do(c.Nack([lease]))

    assert scene.line == ["a"]
    extra = scene.records["a"].extra
    assert extra is not None
    assert [attempt.outcome for attempt in extra.attempts] == ["nacked"]


def test_R39_without_max_deliveries_nothing_dies_and_no_history_is_kept() -> None:
    for dead_on_receive in (False, True):
        scene = Scene(dead_letters=True, dead_on_receive=dead_on_receive)
        scene.send("a")
        for number in range(1, 6):
            (lease,) = scene.receive()
            assert lease.number == number
            scene.do(c.Nack([lease]))
        assert scene.graves == []
        assert scene.records["a"].extra is None


def test_R39_as_sqs_does_it_a_message_dies_when_it_would_be_delivered_once_more() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1, dead_on_receive=True)
    scene.send("a", "b", "c")
    leases = scene.receive(2)
    scene.do(c.Nack(leases))
    assert scene.line == ["c", "a", "b"]

    assert scene.take(1) == ["c"]
    assert scene.graves == []  # it had what it asked for before it came to those

    assert scene.take(1) == []
    assert scene.graves == ["a", "b"]
    extra = scene.records["a"].extra
    assert extra is not None
    assert extra.death == Death("jobs", "delivered 1 times", START)
    assert len(extra.attempts) == 1


def test_R39_as_sqs_does_it_without_a_dead_letter_queue_it_is_delivered() -> None:
    scene = Scene(max_deliveries=1, dead_on_receive=True)
    scene.send("a")
    scene.do(c.Nack(scene.receive()))

    assert scene.take() == ["a"]


def test_R39_a_rejected_message_dies_at_once_with_the_reason_given() -> None:
    scene = Scene(dead_letters=True)
    scene.send("a")
    (lease,) = scene.receive()

    scene.do(c.Reject([lease], "can't be read"))

    extra = scene.records["a"].extra
    assert extra is not None
    assert extra.death == Death("jobs", "can't be read", START)
    assert extra.attempts == (Attempt(START, START, "rejected"),)
    assert scene.graves == ["a"]
    assert lease.deadline == 0


def test_R39_a_rejected_message_goes_back_where_there_is_no_dead_letter_queue() -> None:
    scene = Scene()
    scene.send("a")

    scene.do(c.Reject(scene.receive(), "can't be read"))

    assert scene.line == ["a"]


def test_R39_a_history_has_an_end() -> None:
    scene = Scene(max_deliveries=1)
    scene.send("a")
    for _ in range(102):
        scene.now += 1
        scene.do(c.Nack(scene.receive()))

    extra = scene.records["a"].extra
    assert extra is not None
    assert [attempt.leased_at - START for attempt in extra.attempts] == list(range(3, 103))


def test_R39_redriven_messages_are_as_new_in_their_queue() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1)
    scene.send("a", "b", "c")
    scene.do(c.Nack(scene.receive(3)))
    assert scene.graves == ["a", "b", "c"]
    scene.now += S

    (event,) = scene.do(c.Redrive(scene.keys("a", "c"), scene.queue), to=scene.dead)

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
    scene.do(c.Nack(scene.receive()))
    scene.send("new")
    scene.now += S
    scene.do(c.Redrive(scene.keys("old"), scene.queue), to=scene.dead)

    scene.do(c.Release(scene.receive(2)))

    assert scene.line == ["new", "old"]


def test_R39_a_redrive_to_the_same_queue_is_refused() -> None:
    scene = Scene()

    with pytest.raises(InvalidParameterError, match=r"^to must be another queue; got 'jobs'$"):
        scene.do(c.Redrive(frozenset(), scene.queue))


def test_R39_a_dead_letter_queue_has_none_of_its_own() -> None:
    main, dead, third = Queue("main"), Queue("dead"), Queue("third")
    main.send_dead_letters_to(dead)

    for wrong in (main, dead):
        with pytest.raises(InvalidParameterError) as caught:
            wrong.send_dead_letters_to(wrong)
        assert caught.value.parameter == "dead_letters"
        assert caught.value.value == wrong.name
        assert caught.value.allowed == "another queue, with no dead-letter queue of its own"
    with pytest.raises(InvalidParameterError, match="another queue, with no dead-letter"):
        third.send_dead_letters_to(main)
    with pytest.raises(InvalidParameterError) as caught:
        dead.send_dead_letters_to(third)
    assert str(caught.value) == (
        "dead_letters must be set on a queue that is no dead-letter queue itself; got 'dead'"
    )


def test_R39_a_queue_may_change_its_dead_letter_queue() -> None:
    main, other, dead, third = (Queue(name) for name in ("main", "other", "dead", "third"))
    main.send_dead_letters_to(dead)
    other.send_dead_letters_to(dead)

    main.send_dead_letters_to(third)

    assert (main.dead_letters, dead.sources, third.sources) == (third, [other], [main])


# Removing by key


def test_R39_messages_are_removed_by_key_in_every_state() -> None:
    scene = Scene()
    scene.send("in flight", "ready", "kept")
    scene.send("scheduled", delay=S)
    scene.send("grouped", group="g", priority=3)
    (_, lease) = scene.receive(2)
    assert lease.record.body == "in flight"

    names = ("in flight", "ready", "scheduled", "grouped")
    (event,) = scene.do(c.Remove(scene.keys(*names) | {1}))

    assert event.keys == sorted(scene.keys(*names))
    assert scene.counts == (1, 0, 0)
    assert scene.line == ["kept"]
    assert lease.deadline == 0
    assert scene.queue.groups == {}
    assert scene.queue.mask == 1


def test_R39_messages_that_took_their_place_again_are_removed_too() -> None:
    scene = Scene(redelivery="original")
    scene.send("a", "b")
    scene.do(c.Nack(scene.receive(2)))

    scene.do(c.Remove(scene.keys("a")))
    assert scene.line == ["b"]
    scene.do(c.Remove(scene.keys("b")))
    assert (scene.queue.mask, scene.queue.returned, scene.counts) == (0, {}, (0, 0, 0))


def test_R50_groups_freed_by_a_removal_line_up_by_the_age_of_what_was_removed() -> None:
    """In order of the keys, whatever the order in which a set gives them."""
    scene = Scene()
    names = [f"g{i}" for i in range(12)]
    for name in names:
        scene.send(f"{name} first", f"{name} second", group=name)
    for _ in names:
        scene.receive()

    scene.do(c.Remove(scene.keys(*(f"{name} first" for name in names))))

    assert scene.line == [f"{name} second" for name in names]


# Groups


def test_R55_a_group_is_blocked_while_one_of_its_messages_is_in_flight() -> None:
    scene = Scene()
    scene.send("a1", "a2", "a3", group="a")
    scene.send("b1", group="b")
    first, second = scene.receive(2)
    assert bodies([first, second]) == ["a1", "a2"]  # one group before the next

    assert scene.take(5) == ["b1"]
    assert scene.waiting == ["a3"]
    scene.do(c.Acknowledge([first]))
    assert scene.take(5) == []
    scene.do(c.Acknowledge([second]))
    assert scene.take(5) == ["a3"]
    assert scene.counts == (0, 0, 2)


def test_R55_a_group_keeps_its_order_through_failures() -> None:
    scene = Scene()
    scene.send("a1", "a2", "a3", group="a")
    a1, a2 = scene.receive(2)

    scene.do(c.Nack([a2]))
    assert scene.line == []
    scene.do(c.Nack([a1]))

    assert scene.line == ["a1", "a2", "a3"]


def test_R55_a_group_waits_for_a_message_given_back_with_a_delay() -> None:
    scene = Scene()
    scene.send("a1", "a2", group="a")
    scene.do(c.Nack(scene.receive(), delay=S))

    assert scene.take() == []
    scene.now += S
    assert scene.take(2) == ["a1", "a2"]


def test_R55_a_removed_message_no_longer_blocks_its_group() -> None:
    scene = Scene()
    scene.send("a1", "a2", group="a")
    scene.do(c.Nack(scene.receive(), delay=S))

    scene.do(c.Remove(scene.keys("a1")))

    assert scene.take() == ["a2"]


def test_R55_a_delayed_message_of_a_group_has_the_place_at_which_it_came_due() -> None:
    """Found by the model test: a failure put what was sent earlier, but delayed, in front."""
    scene = Scene()
    scene.send("delayed", group="a", delay=S)
    scene.send("a1", "a2", group="a")
    scene.now += S
    apply.settle(scene.queue, scene.now)
    assert scene.line == ["a1", "a2", "delayed"]

    scene.do(c.Nack(scene.receive()))

    assert scene.line == ["a1", "a2", "delayed"]


def test_R55_groups_take_turns() -> None:
    scene = Scene()
    scene.send("a1", "a2", group="a")
    scene.send("b1", "b2", group="b")

    scene.do(c.Acknowledge(scene.receive()))

    assert scene.line == ["b1", "b2", "a2"]


def test_R55_the_oldest_may_be_behind_a_held_group() -> None:
    scene = Scene()
    assert oldest_key(scene.queue) is None
    scene.send("a1", "a2", group="a")
    scene.send("plain")
    scene.receive()

    assert oldest_key(scene.queue) == scene.records["a2"].key


# Deduplication


def test_R55_a_repetition_within_five_minutes_is_left_out_even_after_the_first_is_gone() -> None:
    scene = Scene()
    assert scene.send("first", deduplication="x") == ["first"]
    scene.do(c.Acknowledge(scene.receive()))

    scene.now += 300 * S - 1
    assert scene.send("again", deduplication="x") == []
    assert decide.original(scene.queue, scene.records["again"], scene.now) == (
        scene.records["first"].key
    )
    assert scene.counts == (0, 0, 0)

    scene.now += 3  # the first key was START / 2 + 1
    assert scene.send("anew", deduplication="x") == ["anew"]
    assert decide.original(scene.queue, scene.records["anew"], scene.now) == (
        scene.records["anew"].key
    )


def test_R55_a_repetition_within_one_batch_is_left_out() -> None:
    scene = Scene()

    assert scene.send("a", "b", deduplication="x", delay=S) == ["a"]
    assert scene.send("c", "d") == ["c", "d"]
    assert scene.send("e", "f", group="g") == ["e", "f"]
    assert scene.counts == (4, 1, 0)


def test_R55_the_scope_of_deduplication_is_the_queue_or_the_group() -> None:
    queue, group = Scene(), Scene(deduplicate_by_group=True)
    for scene in (queue, group):
        scene.send("a", group="a", deduplication="x")

    assert queue.send("b", group="b", deduplication="x") == []
    assert group.send("b", group="b", deduplication="x") == ["b"]
    assert group.send("a again", group="a", deduplication="x") == []


def test_R55_old_deduplication_ids_are_forgotten_and_renewed_ones_kept_in_order() -> None:
    scene = Scene(deduplication_ns=10 * S)
    scene.send("x", deduplication="x")
    scene.now += S
    scene.send("y", deduplication="y")
    scene.now += 9 * S + 2
    scene.send("x again", deduplication="x")
    assert list(scene.queue.duplicates) == [(None, "y"), (None, "x")]

    forgotten_at = (scene.records["y"].key << 1) + 10 * S + S  # a second later than it counts
    scene.now = forgotten_at - 2
    scene.send("w", deduplication="w")
    assert list(scene.queue.duplicates) == [(None, "y"), (None, "x"), (None, "w")]
    scene.now = forgotten_at
    scene.send("z", deduplication="z")
    assert scene.records["z"].key << 1 == forgotten_at
    assert list(scene.queue.duplicates) == [(None, "x"), (None, "w"), (None, "z")]


def test_R55_the_keys_of_a_large_batch_run_ahead_and_still_no_id_is_forgotten_early() -> None:
    """Found by the model test: it answered a repetition with a key that never existed."""
    scene = Scene(deduplication_ns=10 * S)
    scene.send("x", deduplication="x")
    scene.now += 10 * S - 10
    records = [scene.record(f"r{i}", deduplication=f"r{i}") for i in range(20)]
    again = scene.record("x again", deduplication="x")

    scene.do(c.Send([*records, again]))

    assert decide.original(scene.queue, again, scene.now) == scene.records["x"].key
    assert scene.counts == (21, 0, 0)


# Capacity


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


# Timers


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
    assert scene.do(c.Tick()) == []


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


# The hot path


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


@pytest.mark.parametrize("why", ["a group", "a returned message", "a priority", "nothing"])
def test_R50_the_hot_path_leaves_what_is_not_plain_to_decide(why: str) -> None:
    scene = Scene(redelivery="original")
    scene.send("lease", "a", "back")
    (lease,) = scene.receive(1, S)
    (back,) = scene.do(c.Receive(1, S))[0].leases
    if why == "a group":
        scene.send("grouped", group="g")
    elif why == "a returned message":
        scene.do(c.Nack([back]))
    elif why == "a priority":
        scene.send("high", priority=1)

    got = hot.receive(scene.queue, S, scene.now)

    assert (got is not None) == (why == "nothing")
    assert hot.acknowledge(scene.queue, lease) == (why != "a group")


def test_R50_the_hot_path_leaves_an_unusual_lease_to_apply() -> None:
    scene = Scene()
    scene.send(*map(str, range(9)))
    leases = [scene.receive(1, (i + 1) * S)[0] for i in range(9)]

    assert not hot.acknowledge(scene.queue, leases[8])
    assert leases[8].deadline > 0
    assert hot.acknowledge(scene.queue, leases[0])


# What can't be


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
        scene.do(c.Nack(scene.receive()))

    with pytest.raises(AssertionError) as caught:
        apply.leased(scene.queue, [Lease(scene.records["c"], 1, 0, S, S)])

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
