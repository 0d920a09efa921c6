"""Whatever part of an event was applied before an interrupt, `finish` makes it whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pillarbox.core import apply, decide
from pillarbox.core import events as e
from pillarbox.core.finish import finish
from pillarbox.core.lane import Lane
from pillarbox.core.queue import (
    Extra,
    Group,
    Lease,
    Queue,
    Record,
    Redelivery,
    Settings,
    place,
    waiting,
)
from tests.interrupts import interrupted

SECOND = 1_000_000_000
NOW = 100 * SECOND


def message(key: int, priority: int = 0, group: str | None = None) -> Record:
    extra = Extra(group=group, deduplication=f"d{key}") if group is not None else None
    return Record(key, b"%d" % key, priority, 0, None, extra)


def leased(queue: Queue, count: int, timeout: int = 30 * SECOND) -> list[Lease]:
    leases = decide.receive(queue, count, timeout, NOW)
    apply.leased(queue, e.Leased(leases))
    return leases


class World:
    """A queue with messages of every kind, its dead-letter queue, and some leases."""

    def __init__(
        self, redelivery: Redelivery = "tail", *, indexed: bool = False, fair: bool = False
    ) -> None:
        settings = Settings(max_deliveries=3, redelivery=redelivery, fair=fair)
        self.queue = Queue("orders", settings)
        self.dead = Queue("dead", Settings(redelivery=redelivery, fair=fair))
        self.queue.send_dead_letters_to(self.dead)
        for first in (1, 10_002):  # keys grow
            apply.sent(self.queue, e.Sent([message(first + 10 * n) for n in range(16)]))
            apply.sent(self.queue, e.Sent([message(1_000 + first + 10 * n, 4) for n in range(4)]))
            apply.sent(
                self.queue, e.Sent([message(2_000 + first, 0, "blue"), message(2_010 + first)])
            )
            apply.sent(self.queue, e.Sent([message(2_100 + first, 9, "red")]))
        apply.scheduled(self.queue, [message(3_000), message(3_001, 0, "blue")], 2 * NOW)
        self.leases = leased(self.queue, 12)
        apply.extended(self.queue, self.leases[4], 3 * NOW)
        apply.returned(self.queue, e.Returned(self.leases[2], NOW, "nacked", NOW + SECOND))
        apply.returned(self.queue, e.Returned(self.leases[3], NOW, "expired", 0))
        apply.sent(self.dead, e.Sent([message(5_000 + n) for n in range(12)]))
        if indexed:
            self.queue.leases.find(0)

    def held(self, group: bool = False) -> Lease:
        """A lease that has not ended, on a message of a group or not."""
        return next(
            each
            for each in self.queue.leases
            if (each.record.extra is not None and each.record.extra.group is not None) == group
            and each.timeout > 0
        )

    def contents(self) -> dict[str, object]:
        return {each.name: contents(each) for each in (self.queue, self.dead)}


def contents(queue: Queue) -> dict[str, object]:
    """Where every message is, how often it was delivered, and what the queue counts."""
    return {
        "ready": sorted((r.key, r.deliveries, repr(r.extra)) for r in waiting(queue)),
        "scheduled": [(at, key, record.deliveries) for at, key, record in queue.schedule],
        "in flight": sorted((x.record.key, x.number, x.deadline) for x in queue.leases),
        "counts": (
            queue.ready,
            queue.scheduled,
            queue.in_flight,
            queue.grouped,
            queue.groups_in_lanes,
        ),
        "mask": queue.mask,
        "groups": {
            name: (g.held, [r.key for r in g.hidden or ()], len(g.waiting), g.lane)
            for name, g in queue.groups.items()
        },
        "standing": sorted(
            (lane, sum(isinstance(item, Group) for item in line))
            for lane, line in queue.lanes.items()
        ),
        "returned": sorted(queue.returned),
        "duplicates": sorted(queue.duplicates),
        "index": queue.leases.find(-1) if not queue.leases.lines else None,
    }


EVENTS: dict[str, Callable[[World], e.Event]] = {
    "sent": lambda w: e.Sent([message(90_001), message(90_002), message(90_003)]),
    "sent to groups": lambda w: e.Sent([message(90_001, 2, "blue"), message(90_002, 3, "new")]),
    "scheduled": lambda w: e.Scheduled([message(90_001), message(90_002, 0, "blue")], 5 * NOW),
    "rescheduled": lambda w: e.Rescheduled(message_of(w, 3_000), 7 * NOW),
    "came due": lambda w: e.CameDue(message_of(w, 3_000), NOW),
    "came due in a group": lambda w: e.CameDue(message_of(w, 3_001), NOW),
    "came due again": lambda w: e.CameDue(w.leases[2].record, NOW),
    "leased": lambda w: e.Leased(decide.receive(w.queue, 30, 60 * SECOND, NOW)),
    "hidden": lambda w: decide.change_visibility(w.queue, 10_012, SECOND, NOW)[0],
    "acknowledged": lambda w: e.Acknowledged([w.held(), w.held(group=True)]),
    "returned": lambda w: e.Returned(w.held(), NOW, "nacked"),
    "returned to a group": lambda w: e.Returned(w.held(group=True), NOW, "nacked"),
    "returned with a delay": lambda w: e.Returned(w.held(group=True), NOW, "nacked", 2 * NOW),
    "released": lambda w: e.Released(w.held(), to_front=False),
    "released to the front": lambda w: e.Released(w.held(), to_front=True),
    "released to a group": lambda w: e.Released(w.held(group=True), to_front=True),
    "extended": lambda w: e.Extended(w.held(), 4 * NOW, NOW),
    "extended again": lambda w: e.Extended(w.leases[4], 4 * NOW, NOW),
    "died": lambda w: e.Died(w.held(group=True), NOW, "rejected", "no good"),
    "died in line": lambda w: e.DiedInLine(decide.receive(w.queue, 1, 1, NOW)[0].record, NOW, "x"),
    "removed": lambda w: e.Removed([31, 2_111, 3_000, w.held().record.key]),
    "many removed": lambda w: e.Removed([21 + 30 * n for n in range(5)]),
    "purged": lambda w: e.Purged(),
}


def test_R111_a_failure_is_noted_only_where_something_may_die_of_it() -> None:
    queue = Queue("orders")
    apply.sent(queue, e.Sent([message(1)]))
    (lease,) = leased(queue, 1)
    finish(queue, e.Returned(lease, NOW, "nacked"))
    (record,) = waiting(queue)
    assert (record.deliveries, record.extra) == (1, None)


def test_R111_lines_that_an_interrupt_left_behind_are_put_right() -> None:
    world = World("original")
    (lane,) = list(world.queue.returned)
    world.queue.returned[7] = Lane(place)  # its last message was taken, and nothing else was done
    blue = world.queue.groups["blue"]
    world.queue.lanes[blue.lane].append(blue)  # it stands there twice
    world.queue.groups["gone"] = Group()  # all it had is done

    finish(world.queue, e.Sent([message(90_001)]))

    assert list(world.queue.returned) == [lane]
    assert "gone" not in world.queue.groups
    assert sum(item is blue for line in world.queue.lanes.values() for item in line) == 1


def message_of(world: World, key: int) -> Record:
    record = world.queue.schedule.find(key)
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("redelivery", "fair", "indexed"),
    [
        ("tail", False, False),
        ("tail", False, True),
        ("original", False, False),
        ("original", False, True),
        ("original", True, False),
    ],
)
@pytest.mark.parametrize("name", EVENTS)
def test_R111_an_interrupted_event_is_finished(
    name: str, redelivery: Redelivery, fair: bool, indexed: bool
) -> None:
    whole = World(redelivery, indexed=indexed, fair=fair)
    apply.apply(whole.queue, EVENTS[name](whole))
    expected = whole.contents()

    at, more = 0, True
    while more:
        world = World(redelivery, indexed=indexed, fair=fair)
        event = EVENTS[name](world)
        more = interrupted(lambda: apply.apply(world.queue, event), at, "pillarbox.core")  # noqa: B023
        finish(world.queue, event)
        assert world.contents() == expected, f"interrupted at point {at}"
        at += 1


def test_R111_dead_letters_that_were_being_redriven_arrive() -> None:
    at, more = 0, True
    while more:
        world = World()
        event = decide.redrive(world.dead, frozenset(range(5_002, 5_006)), world.queue, NOW)
        before = world.queue.size
        more = interrupted(lambda: apply.apply(world.dead, event), at, "pillarbox.core")  # noqa: B023
        finish(world.dead, event)
        assert (world.queue.size, world.dead.size) == (before + 4, 8), f"at point {at}"
        at += 1


def test_R111_control_an_interrupted_event_left_alone_is_not_whole() -> None:
    whole = World()
    apply.apply(whole.queue, EVENTS["leased"](whole))
    expected = whole.contents()
    differs, at, more = 0, 0, True
    while more:
        world = World()
        event = EVENTS["leased"](world)
        more = interrupted(lambda: apply.apply(world.queue, event), at, "pillarbox.core")  # noqa: B023
        differs += world.contents() != expected
        at += 1
    assert differs > 1
