"""Messages are taken out of a line wherever they stand in it."""

from __future__ import annotations

import pytest

from pillarbox.core import apply
from tests.core import commands as c
from tests.core.scene import Scene


def _keys(scene: Scene, bodies: str) -> frozenset[int]:
    return frozenset(scene.records[body].key for body in bodies)


@pytest.mark.parametrize(
    ("gone", "left"),
    [("a", "bcde"), ("e", "abcd"), ("c", "abde"), ("ae", "bcd"), ("bd", "ace"), ("abcde", "")],
)
def test_R39_a_message_is_removed_wherever_it_stands(gone: str, left: str) -> None:
    scene = Scene()
    scene.send(*"abcde")
    scene.do(c.remove(_keys(scene, gone)))
    assert scene.line == list(left)


def test_R39_many_messages_are_removed_as_few_are() -> None:
    scene = Scene()
    names = [f"m{number}" for number in range(400)]
    scene.send(*names)
    gone = set(names[1:-1:2])
    scene.do(c.remove(frozenset(scene.records[name].key for name in gone)))
    assert scene.line == [name for name in names if name not in gone]


def test_R39_messages_are_removed_from_several_lanes_at_once() -> None:
    scene = Scene()
    scene.send(*"ab", priority=3)
    scene.send(*"cde")
    scene.do(c.remove(_keys(scene, "bd")))
    assert scene.line == ["a", "c", "e"]


def test_R39_a_group_between_plain_messages_stays_when_these_are_removed() -> None:
    scene = Scene()
    scene.send("a")
    scene.send(*"bc", group="g")
    scene.send(*"de")
    scene.do(c.remove(_keys(scene, "ad")))
    assert scene.line == ["b", "c", "e"]
    scene.do(c.remove(_keys(scene, "b")))
    assert scene.line == ["c", "e"]
    scene.do(c.remove(_keys(scene, "c")))
    assert scene.line == ["e"]


def test_R39_a_redrive_takes_those_it_names_and_no_others() -> None:
    scene = Scene(dead_letters=True, max_deliveries=1)
    scene.send(*"abc")
    scene.do(c.nack(scene.receive(3)))
    grave = scene.queue.dead_letters
    assert grave is not None
    scene.do(c.redrive(_keys(scene, "b"), scene.queue), to=grave)
    assert scene.line == ["b"]
    assert scene.graves == ["a", "c"]


def test_R39_a_message_is_looked_for_in_groups_held_and_free() -> None:
    scene = Scene()
    scene.send("held", "behind", group="a")
    scene.send("free", group="b")
    scene.take(1)

    (removed,) = scene.do(c.remove(scene.keys("behind", "free") | {5}))

    assert removed.keys == sorted(scene.keys("behind", "free"))
    assert (scene.waiting, scene.counts) == ([], (0, 0, 1))


def test_R11_a_batch_of_nothing_changes_nothing() -> None:
    scene = Scene()
    apply.append_plain(scene.queue, [], 3)

    assert (scene.queue.mask, scene.counts) == (0, (0, 0, 0))
