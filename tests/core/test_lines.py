"""Who stands where in line, and how few looks it takes to find out."""

from __future__ import annotations

from pillarbox.core import apply, decide, lines
from pillarbox.core import events as e
from pillarbox.core import queue as queue_module
from pillarbox.core.lane import Lane
from pillarbox.core.queue import Group, Queue, Record, waiting
from tests.core import commands as c
from tests.core.scene import S, Scene


def test_R51_a_message_is_found_by_a_few_looks_at_a_long_line() -> None:
    looks = 0

    def lane_position(item: Record | Group) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        return queue_module.lane_position(item)

    queue = Queue("long")
    queue.lanes[0] = Lane(lane_position, [Record(1_000 + 7 * n, b"") for n in range(100_000)])
    queue.mask = 1
    for key in (1_000, 1_000 + 7 * 50_000, 1_000 + 7 * 99_999):
        looks = 0
        found = lines.find(queue, key)
        assert found is not None
        assert found.key == key
        assert looks < 40
    assert lines.find(queue, 1_001) is None


def test_R51_lines_that_an_older_version_left_unsorted_are_sorted_out() -> None:
    scene = Scene()
    scene.send("a", "b", "c")
    lane = scene.queue.lanes[0]
    lane.append(lane.popleft())  # "a" went to the end, and nothing was noted

    lines.rebuild_index(scene.queue)

    assert [record.body for record in waiting(scene.queue)] == ["b", "c", "a"]
    for name in "abc":
        assert lines.find(scene.queue, scene.records[name].key) is scene.records[name]


def test_R51_messages_with_a_position_of_their_own_are_found_after_a_restart() -> None:
    scene = Scene()
    scene.send("a", "b", "c", "d")
    scene.do(c.release(scene.receive(2)))  # the line is now c, d, a, b
    before = dict(scene.queue.out_of_order)
    scene.queue.out_of_order = {}  # a snapshot does not have it

    lines.rebuild_index(scene.queue)

    assert scene.queue.out_of_order == before
    assert {record.body for record in before.values()} == {"a", "b"}
    assert [record.body for record in waiting(scene.queue)] == ["c", "d", "a", "b"]
    for name in "abcd":
        assert lines.find(scene.queue, scene.records[name].key) is scene.records[name]


def test_R51_of_leases_that_end_together_the_oldest_messages_come_back_first() -> None:
    scene = Scene()
    scene.send("a", "b", "c", "d")
    first = scene.receive(2)
    scene.do(c.release(first))  # the line is now c, d, a, b
    scene.receive(2)
    scene.receive(2)  # a and b, at the same time
    due = decide.tick(scene.queue, scene.now + 3_600 * S, 3)
    names = [event.lease.record.body for event in due if isinstance(event, e.Returned)]
    assert names == ["a", "b", "c"]


def test_R51_the_keys_of_what_is_scheduled_can_be_had_in_no_order() -> None:
    queue = Queue("later")
    apply.scheduled(queue, [Record(1, b""), Record(2, b"")], 5)
    assert sorted(queue.schedule.keys()) == [1, 2]
