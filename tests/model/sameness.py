"""What must be equal in a queue and its model, and what must always hold inside a queue."""

from __future__ import annotations

import operator
from collections import deque
from typing import Any

from msgspec.structs import astuple

from pillarbox.core import lines
from pillarbox.core.lane import Lane
from pillarbox.core.queue import (
    NEVER,
    NO_LANE,
    Group,
    Queue,
    Record,
    next_deadline,
    oldest_key,
    waiting,
)
from tests.model import naive


def compare(queue: Queue, model: naive.NaiveQueue) -> None:
    ours, theirs = view(queue), _view_of_model(model)
    if ours != theirs:
        different = {
            name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]
        }
        raise AssertionError(f"queue {queue.name!r} and its model differ: {different}")


def view(queue: Queue) -> dict[str, Any]:
    return {
        "counts": (queue.size, queue.ready, queue.scheduled, queue.in_flight),
        "waiting": [record_view(record) for record in waiting(queue)],
        "scheduled": [(at, record_view(record)) for at, _, record in queue.schedule],
        "in flight": sorted(
            (x.deadline, x.record.key, x.number, x.leased_at, x.record.body) for x in queue.leases
        ),
        "next deadline": next_deadline(queue),
        "oldest": oldest_key(queue),
    }


def _view_of_model(model: naive.NaiveQueue) -> dict[str, Any]:
    scheduled = [m for m in model.messages if m.state == naive.SCHEDULED]
    leases = [m.lease for m in model.messages if m.lease is not None]
    counts = [model.count(s) for s in (naive.READY, naive.SCHEDULED, naive.IN_FLIGHT)]
    line = model.line()
    return {
        "counts": (len(model.messages), *counts),
        "waiting": [_message_view(message) for message in (*line, *model.blocked())],
        "scheduled": [
            (m.due, _message_view(m)) for m in sorted(scheduled, key=lambda m: (m.due, m.key))
        ],
        "in flight": sorted(
            (x.deadline, x.message.key, x.number, x.leased_at, x.message.body) for x in leases
        ),
        "next deadline": model.next_deadline(),
        "oldest": model.oldest(line),
    }


def record_view(record: Record) -> tuple[Any, ...]:
    x = record.extra
    if x is None:
        head = (record.key, record.body, record.priority, record.deliveries)
        return (*head, None, None, (), None, 0)
    attempts = tuple(astuple(attempt) for attempt in x.attempts)
    death = None if x.death is None else astuple(x.death)
    return (
        *(record.key, record.body, record.priority, record.deliveries),
        *(x.group, x.deduplication, attempts, death, x.releases),
    )


def _message_view(m: naive.Message) -> tuple[Any, ...]:
    return (
        *(m.key, m.body, m.priority, m.deliveries),
        *(m.group, m.deduplication, m.attempts, m.death, m.releases),
    )


# What must always hold


def check_inside(queue: Queue, model: naive.NaiveQueue) -> None:
    assert queue.size == queue.ready + queue.scheduled + queue.in_flight
    assert min(queue.size, queue.ready, queue.scheduled, queue.in_flight) >= 0
    occupied = {p for p, lane in queue.lanes.items() if lane} | set(queue.returned)
    assert queue.mask == sum(1 << p for p in occupied), "the mask"
    assert all(queue.returned.values()), "an empty line of returned ones is kept"
    assert queue.wake_at <= (next_deadline(queue) or NEVER), "it would wake too late"
    standing = [
        (p, item) for p, lane in queue.lanes.items() for item in lane if isinstance(item, Group)
    ]
    assert len(standing) == sum(group.lane != NO_LANE for group in queue.groups.values())
    for name, group in queue.groups.items():
        held = sum(m.held for m in model.messages if model.name_of(m) == name)
        assert group.held == held, "what a group waits for"
        assert group.waiting or group.held, "a group without reason"
        assert (group.lane != NO_LANE) == (name in model.turns), "a group's turn"
        assert group.lane == NO_LANE or (group.lane, group) in standing, "a group's lane"
    assert list(queue.groups) == model.groups
    assert queue.grouped == sum(len(group.waiting) for group in queue.groups.values())
    assert queue.groups_in_lanes == len(standing)
    for lane in queue.lanes.values():
        stands = [lane.position(item) for item in lane]
        assert all(map(operator.lt, stands, stands[1:])), "a lane is sorted"
    ready = {record.key: record for record in waiting(queue)}
    assert queue.out_of_order.items() <= ready.items(), "out of order, and not in line"
    assert all(lines.find(queue, key) is record for key, record in ready.items()), "not found"
    alive = {name: entry for name, entry in model.known.items() if name in queue.duplicates}
    assert dict(queue.duplicates) == alive, "what it knows of duplicates"


def snapshot(queue: Queue) -> list[Any]:
    """All of a queue's state by value, the insides of its index structures too."""
    return [_by_value(getattr(queue, name)) for name in sorted(vars(queue))]


def _by_value(thing: Any) -> Any:
    if thing is None or isinstance(thing, int | str | bytes):
        return thing
    if isinstance(thing, Queue):
        return thing.name
    if isinstance(thing, dict):
        return [(_by_value(key), _by_value(value)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | deque | Lane):
        return [_by_value(each) for each in thing]
    names = getattr(thing, "__struct_fields__", None) or type(thing).__slots__
    return [_by_value(getattr(thing, name)) for name in names]
