"""The encoding of a store's state, so that recovery need not replay the log from the start.

Messages are stored as columns, so a million of them are read back without a step for each field.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import repeat
from typing import Any, cast

import msgspec
from msgspec import Struct

from pillarbox.core import lines
from pillarbox.core.lane import Lane
from pillarbox.core.queue import (
    Extra,
    Group,
    Lease,
    Queue,
    Record,
    Settings,
    place,
)


class Rows(Struct, array_like=True):
    """Records as columns; rare fields are stored by position."""

    keys: bytes
    bodies: bytes
    priorities: bytes
    deliveries: bytes
    attributes: dict[int, dict[str, str]]
    extras: dict[int, Extra]


class QueueState(Struct, array_like=True):
    """One queue. A lane is its records, and the positions of groups between them."""

    number: int
    name: str
    settings: Settings
    dead_letters: str | None
    lanes: dict[int, tuple[Any, list[tuple[int, str]]]]
    returned: dict[int, Any]
    groups: dict[str, tuple[Any, int]]
    schedule: Any  # records, with their due times
    leases: Any  # records, with their leases
    duplicates: list[Any]  # scope, id, key, expiry
    notes: dict[str, Any] = {}


class StoreState(Struct, array_like=True):
    """A store as of the log index `index`; includes every earlier entry."""

    index: int
    prefix: str
    secret: bytes
    last_key: int
    time: int
    queues: list[QueueState]
    last_number: int = -1  # highest queue number, including deleted queues
    log_id: str = ""  # the log that holds the bodies
    oldest: int = 0  # the log index of the oldest body


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(StoreState).decode


def encoded_queue(state: QueueState) -> QueueState:
    """Encode one queue for a snapshot, so that a large store is encoded queue by queue."""
    return cast("QueueState", msgspec.Raw(encode(state)))


def restore(state: QueueState, queue: Queue) -> None:
    """Fill an empty queue from its state. The caller sets its dead-letter queue."""
    for name, (rows, _) in state.groups.items():
        group = queue.groups[name] = Group()
        group.waiting.extend(_records(rows))
        queue.grouped += len(group.waiting)
    for priority, (rows, groups) in state.lanes.items():
        records = _records(rows)
        queue.lanes[priority].extend(_lane(queue, priority, records, groups) if groups else records)
        if queue.lanes[priority]:
            queue.mask |= 1 << priority
    for priority, rows in state.returned.items():
        queue.returned[priority] = Lane(place, _records(rows))
        queue.mask |= 1 << priority
    lines.rebuild_index(queue)
    rows, times = state.schedule
    for record, due in zip(_records(rows), times, strict=True):
        queue.schedule.add(int(due), record)
    rows, held_leases = state.leases
    for record, (number, at, deadline, timeout, extra) in zip(
        _records(rows), held_leases, strict=True
    ):
        seen = msgspec.convert(extra, Extra) if extra is not None else None
        queue.leases.add(Lease(record, number, at, deadline, timeout, seen))
    for record, name in lines.held(queue) if queue.groups else ():
        lines.hide(queue, queue.groups[name], record)
    for scope, name, key, until in state.duplicates:
        queue.duplicates[scope, name] = (key, until)
    queue.wake_at = 0  # the first operation settles what is due


def _lane(
    queue: Queue, priority: int, records: list[Record], groups: list[tuple[int, str]]
) -> Iterator[Record | Group]:
    plain = iter(records)
    by_position = dict(groups)
    for at in range(len(records) + len(groups)):
        if at in by_position:
            group = queue.groups[by_position[at]]
            group.lane = priority
            queue.groups_in_lanes += 1
            yield group
        else:
            yield next(plain)


def _records(packed: Any) -> list[Record]:
    rows = msgspec.convert(packed, Rows)
    keys, bodies, deliveries = array("Q"), array("Q"), array("I")
    keys.frombytes(rows.keys)
    bodies.frombytes(rows.bodies)
    numbers = rows.priorities + rows.deliveries
    if not (rows.attributes or rows.extras or numbers.strip(b"\0")):
        return list(map(Record, keys, bodies))  # the usual case: new messages only
    deliveries.frombytes(rows.deliveries)
    attributes: Any = [None] * len(keys) if rows.attributes else repeat(None)
    extras: Any = [None] * len(keys) if rows.extras else repeat(None)
    for i, noted in rows.attributes.items():
        attributes[i] = noted
    for i, extra in rows.extras.items():
        extras[i] = extra
    return list(map(Record, keys, bodies, rows.priorities, deliveries, attributes, extras))
