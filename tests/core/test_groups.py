"""Message groups and deduplication, one story each (R55)."""

from __future__ import annotations

from pillarbox.core import apply, decide
from pillarbox.core.queue import (
    oldest_key,
)
from tests.core import commands as c
from tests.core.scene import S, Scene, bodies


def test_R55_a_group_is_blocked_while_one_of_its_messages_is_in_flight() -> None:
    scene = Scene()
    scene.send("a1", "a2", "a3", group="a")
    scene.send("b1", group="b")
    first, second = scene.receive(2)
    assert bodies([first, second]) == ["a1", "a2"]  # one group before the next

    assert scene.take(5) == ["b1"]
    assert scene.waiting == ["a3"]
    scene.do(c.acknowledge([first]))
    assert scene.take(5) == []
    scene.do(c.acknowledge([second]))
    assert scene.take(5) == ["a3"]
    assert scene.counts == (0, 0, 2)


def test_R55_a_group_keeps_its_order_through_failures() -> None:
    scene = Scene()
    scene.send("a1", "a2", "a3", group="a")
    a1, a2 = scene.receive(2)

    scene.do(c.nack([a2]))
    assert scene.line == []
    scene.do(c.nack([a1]))

    assert scene.line == ["a1", "a2", "a3"]


def test_R55_a_group_waits_for_a_message_given_back_with_a_delay() -> None:
    scene = Scene()
    scene.send("a1", "a2", group="a")
    scene.do(c.nack(scene.receive(), delay=S))

    assert scene.take() == []
    scene.now += S
    assert scene.take(2) == ["a1", "a2"]


def test_R55_a_removed_message_no_longer_blocks_its_group() -> None:
    scene = Scene()
    scene.send("a1", "a2", group="a")
    scene.do(c.nack(scene.receive(), delay=S))

    scene.do(c.remove(scene.keys("a1")))

    assert scene.take() == ["a2"]


def test_R55_a_delayed_message_of_a_group_has_the_place_at_which_it_came_due() -> None:
    """Found by the model test: a failure put what was sent earlier, but delayed, in front."""
    scene = Scene()
    scene.send("delayed", group="a", delay=S)
    scene.send("a1", "a2", group="a")
    scene.now += S
    apply.settle(scene.queue, scene.now)
    assert scene.line == ["a1", "a2", "delayed"]

    scene.do(c.nack(scene.receive()))

    assert scene.line == ["a1", "a2", "delayed"]


def test_R55_groups_take_turns() -> None:
    scene = Scene()
    scene.send("a1", "a2", group="a")
    scene.send("b1", "b2", group="b")

    scene.do(c.acknowledge(scene.receive()))

    assert scene.line == ["b1", "b2", "a2"]


def test_R55_the_oldest_may_be_behind_a_held_group() -> None:
    scene = Scene()
    assert oldest_key(scene.queue) is None
    scene.send("a1", "a2", group="a")
    scene.send("plain")
    scene.receive()

    assert oldest_key(scene.queue) == scene.records["a2"].key


def test_R55_a_repetition_within_five_minutes_is_left_out_even_after_the_first_is_gone() -> None:
    scene = Scene()
    assert scene.send("first", deduplication="x") == ["first"]
    scene.do(c.acknowledge(scene.receive()))

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

    scene.do(c.send([*records, again]))

    assert decide.original(scene.queue, again, scene.now) == scene.records["x"].key
    assert scene.counts == (21, 0, 0)
