"""The state of a whole store as bytes, so that recovery need not replay its log from the start.

`capture` is quick and needs the store's lock: it copies what changes, in C loops. `encode`
does the rest without it. What a message is goes into columns: a million of them are read
back without a step for each field.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
from msgspec import Struct

from pillarbox.core import lines
from pillarbox.core.lane import Lane
from pillarbox.core.leases import UNUSUAL, Leases
from pillarbox.core.queue import (
    Extra,
    Group,
    Lease,
    Queue,
    Record,
    Settings,
    extra_of,
    place,
    record_of,
)
from pillarbox.core.timers import Timers

_deliveries_of = attrgetter("deliveries")
_deadline_of = attrgetter("deadline")
_timeout_of = attrgetter("timeout")


class Captured:
    """Records, with what may change before they are encoded."""

    __slots__ = ("deliveries", "extras", "records")

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)
        self.extras = list(map(extra_of, self.records))
        self.deliveries = list(map(_deliveries_of, self.records))

    def only(self, positions: list[int]) -> Captured:
        """Those at these positions."""
        chosen = Captured(())
        chosen.records = [self.records[at] for at in positions]
        chosen.extras = [self.extras[at] for at in positions]
        chosen.deliveries = [self.deliveries[at] for at in positions]
        return chosen


class CapturedSchedule:
    """Records with the times that they are due, in no order."""

    __slots__ = ("captured", "entries")

    def __init__(self, schedule: Timers) -> None:
        self.entries = schedule.entries()
        self.captured = Captured(map(itemgetter(2), self.entries))

    def rows(self) -> tuple[Rows, list[str]]:
        return _rows(self.captured), [str(due) for due, _, _ in self.entries]


class CapturedLeases:
    """Leases, with what may change before they are encoded."""

    __slots__ = ("captured", "deadlines", "leases", "timeouts", "unusual")

    def __init__(self, leases: Leases) -> None:
        in_line, unusual = leases.entries()
        self.leases = in_line + unusual
        self.unusual = len(unusual)
        self.deadlines = list(map(_deadline_of, self.leases))
        self.timeouts = list(map(_timeout_of, self.leases))
        self.captured = Captured(map(record_of, self.leases))

    def living(self) -> list[int]:
        """The positions of those that were not over; an unusual one may stand in a line, too."""
        in_line = len(self.leases) - self.unusual
        found = [
            at
            for at, timeout in enumerate(self.timeouts[:in_line])
            if timeout != UNUSUAL and self.deadlines[at]
        ]
        return [*found, *range(in_line, len(self.leases))]

    def rows(self) -> tuple[Rows, list[list[Any]]]:
        living, captured = self.living(), self.captured
        held = [
            [x.number, x.leased_at, self.deadlines[at], self.timeouts[at], x.extra]
            for at, x in ((at, self.leases[at]) for at in living)
        ]
        return _rows(captured.only(living)), held


class Rows(Struct, array_like=True):
    """Records as columns; what few have is kept by position."""

    keys: bytes
    bodies: bytes
    priorities: bytes
    deliveries: bytes
    attributes: dict[int, dict[str, str]]
    extras: dict[int, Extra]


class QueueState(Struct, array_like=True):
    """One queue. A lane is its records, and the groups that stand between them."""

    number: int
    name: str
    settings: Settings
    dead_letters: str | None
    lanes: dict[int, tuple[Any, list[tuple[int, str]]]]
    returned: dict[int, Any]
    groups: dict[str, tuple[Any, int]]
    schedule: Any  # records, and when each is due
    leases: Any  # records, and the lease on each
    duplicates: list[Any]  # scope, id, key, and when to forget it
    notes: dict[str, Any] = {}
    fronts: dict[str, tuple[int, int]] = {}  # of the groups


class StoreState(Struct, array_like=True):
    """A store as of the log index `index`: every earlier entry is in it."""

    index: int
    prefix: str
    secret: bytes
    last_key: int
    time: int
    queues: list[QueueState]
    last_number: int = -1  # of any queue, dropped ones too
    log_id: str = ""  # of the log that the bodies are in
    oldest: int = 0  # the first index at which a body is


def capture(queue: Queue, number: int) -> QueueState:
    """Take hold of a queue's state; the caller has the store's lock."""
    names = {id(group): name for name, group in queue.groups.items()}
    lanes = {}
    for priority, lane in queue.lanes.items():
        groups = []
        if queue.lined_up:
            groups = [(i, names[id(x)]) for i, x in enumerate(lane) if x.__class__ is Group]
        plain: Any = [x for x in lane if x.__class__ is Record] if groups else lane
        lanes[priority] = (Captured(plain), groups)
    return QueueState(
        number,
        queue.name,
        queue.settings,
        queue.dead_letters.name if queue.dead_letters is not None else None,
        lanes,
        {priority: Captured(line) for priority, line in queue.returned.items()},
        {name: (Captured(group.waiting), group.held) for name, group in queue.groups.items()},
        CapturedSchedule(queue.schedule),
        CapturedLeases(queue.leases),
        list(queue.duplicates.items()),
        fronts={name: group.front for name, group in queue.groups.items() if group.front[0]},
    )


def records_of(state: QueueState) -> Iterator[Record]:
    """Every message of a captured queue."""
    for plain, _ in state.lanes.values():
        yield from plain.records
    for line in state.returned.values():
        yield from line.records
    for waiting, _ in state.groups.values():
        yield from waiting.records
    yield from state.schedule.captured.records
    leases = state.leases
    yield from map(leases.captured.records.__getitem__, leases.living())


def encode(state: StoreState) -> bytes:
    for queue in state.queues:
        queue.duplicates = [(*name, *known) for name, known in queue.duplicates]
    return _encoder.encode(state)


def _rows(captured: Any) -> Rows:
    """The columns of captured records."""
    records = captured.records
    return Rows(
        array("Q", [record.key for record in records]).tobytes(),
        array("Q", [record.body for record in records]).tobytes(),
        bytes([record.priority for record in records]),
        array("I", captured.deliveries).tobytes(),
        {i: r.attributes for i, r in enumerate(records) if r.attributes is not None},
        {i: extra for i, extra in enumerate(captured.extras) if extra is not None},
    )


def _encodable(captured: Any) -> Any:
    return _rows(captured) if isinstance(captured, Captured) else captured.rows()


_encoder = msgspec.msgpack.Encoder(enc_hook=_encodable)
_decoder = msgspec.msgpack.Decoder(StoreState)


def decode(data: bytes) -> StoreState:
    return _decoder.decode(data)


def restore(state: QueueState, queue: Queue) -> None:
    """Fill an empty queue. Its dead-letter queue is set by whoever knows all of them."""
    for name, (rows, held) in state.groups.items():
        group = queue.groups[name] = Group()
        group.waiting.extend(_records(rows))
        group.held, group.front = held, state.fronts.get(name, (0, 0))
        queue.grouped += len(group.waiting)
    for priority, (rows, groups) in state.lanes.items():
        records = _records(rows)
        queue.lanes[priority].extend(_lane(queue, priority, records, groups) if groups else records)
        if queue.lanes[priority]:
            queue.mask |= 1 << priority
    for priority, rows in state.returned.items():
        queue.returned[priority] = Lane(place, _records(rows))
        queue.mask |= 1 << priority
    lines.sort_out(queue)
    rows, times = state.schedule
    for record, due in zip(_records(rows), times, strict=True):
        queue.schedule.add(int(due), record)
    rows, held_leases = state.leases
    for record, (number, at, deadline, timeout, extra) in zip(
        _records(rows), held_leases, strict=True
    ):
        seen = msgspec.convert(extra, Extra) if extra is not None else None
        queue.leases.add(Lease(record, number, at, deadline, timeout, seen))
    for scope, name, key, until in state.duplicates:
        queue.duplicates[scope, name] = (key, until)
    queue.wake_at = 0  # whatever is due is found by the first operation


def _lane(
    queue: Queue, priority: int, records: list[Record], groups: list[tuple[int, str]]
) -> Iterator[Record | Group]:
    plain = iter(records)
    standing = dict(groups)
    for at in range(len(records) + len(groups)):
        if at in standing:
            group = queue.groups[standing[at]]
            group.lane = priority
            queue.lined_up += 1
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
        return list(map(Record, keys, bodies))  # a line of new messages, most often
    deliveries.frombytes(rows.deliveries)
    attributes: Any = [None] * len(keys) if rows.attributes else repeat(None)
    extras: Any = [None] * len(keys) if rows.extras else repeat(None)
    for i, noted in rows.attributes.items():
        attributes[i] = noted
    for i, extra in rows.extras.items():
        extras[i] = extra
    return list(map(Record, keys, bodies, rows.priorities, deliveries, attributes, extras))
