"""Encodes events as bytes for a log, and replays them.

One entry for each message of an event: a fixed header (so that a million of them can be read as
columns), then details, then the body. The encoding is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any, Final, NamedTuple

import msgspec

from pillarbox.core import apply, lines
from pillarbox.core import events as e
from pillarbox.core.queue import Extra, Lease, Queue, Record

# kind, priority, delivery number or flag, queue number, key, time (low and high part, because
# the calendar ends later than 64 bits of nanoseconds), length of the details
HEAD: Final = Layout("<BBHIQQII")

SENT, SCHEDULED, CAME_DUE, LEASED, ACKNOWLEDGED, RETURNED, RELEASED = range(1, 8)
EXTENDED, DIED, DIED_IN_LINE, REDRIVEN, REMOVED, PURGED = range(8, 14)
IDENTITY, DECLARED, RESTATED = range(14, 17)  # events of a store, not of a queue
RESCHEDULED = 17
NOTED, DROPPED = range(18, 20)  # of a store: a queue's metadata, and its deletion

KINDS: Final = {
    SENT: "sent",
    SCHEDULED: "scheduled",
    CAME_DUE: "came_due",
    LEASED: "leased",
    ACKNOWLEDGED: "acknowledged",
    RETURNED: "returned",
    RELEASED: "released",
    EXTENDED: "extended",
    DIED: "died",
    DIED_IN_LINE: "died_in_line",
    REDRIVEN: "redriven",
    REMOVED: "removed",
    PURGED: "purged",
    IDENTITY: "identity",
    DECLARED: "declared",
    RESTATED: "restated",
    RESCHEDULED: "rescheduled",
    NOTED: "noted",
    DROPPED: "dropped",
}

_LOW_BITS = 64
_LOW = (1 << _LOW_BITS) - 1
_NUMBER_MAX = 0xFFFF  # largest number in the header; the details have larger ones

_pack_head = HEAD.pack
_pack = msgspec.msgpack.Encoder(order="deterministic").encode
_unpack = msgspec.msgpack.Decoder().decode


class ReplayError(Exception):
    """An entry contradicts the state that the entries before it produced."""


class Entry(NamedTuple):
    """One decoded entry. The meaning of `number` and `at` depends on the kind."""

    kind: int
    priority: int
    number: int
    queue: int
    key: int
    at: int
    details: Any
    body: bytes


def encode(event: e.Event, queue: int = 0) -> list[bytes]:
    """Return the entries of an event of the queue with this number."""
    return _ENCODE[type(event)](event, queue)


def sent_entry(queue: int, record: Record, kind: int = SENT, due: int = 0) -> bytes:
    """Return the entry of a new message."""
    key, priority, extra, body = record.key, record.priority, record.extra, record.body
    entry: bytes
    if record.attributes is None and extra is None and not due:
        entry = _pack_head(kind, priority, 0, queue, key, 0, 0, 0) + body
        return entry
    names = (None, None) if extra is None else (extra.group, extra.deduplication)
    details = b""
    if record.attributes is not None or extra is not None:
        details = _pack((record.attributes, *names))
    times = due & _LOW, due >> _LOW_BITS
    entry = _pack_head(kind, priority, 0, queue, key, *times, len(details)) + details + body
    return entry


def leased_entry(queue: int, lease: Lease) -> bytes:
    at = lease.leased_at
    number = lease.number
    details = _pack((lease.deadline - at, number))
    noted = number if number < _NUMBER_MAX else _NUMBER_MAX
    low, high = at & _LOW, at >> _LOW_BITS
    return _pack_head(LEASED, 0, noted, queue, lease.record.key, low, high, len(details)) + details


def acknowledged_entry(queue: int, lease: Lease) -> bytes:
    return _pack_head(ACKNOWLEDGED, 0, 0, queue, lease.record.key, 0, 0, 0)


def decode(entry: bytes) -> Entry:
    kind, priority, number, queue, key, low, high, length = HEAD.unpack_from(entry)
    at = low | high << _LOW_BITS
    start = HEAD.size
    details = _unpack(entry[start : start + length]) if length else None
    return Entry(kind, priority, number, queue, key, at, details, entry[start + length :])


def body_of(entry: bytes) -> bytes:
    """Return the body of an entry."""
    return entry[HEAD.size + HEAD.unpack_from(entry)[-1] :]


def replay(queue: Queue, entry: Entry, body: Any, find: Callable[[str], Queue]) -> None:
    """Apply an entry. `body` is stored in the record; `find` looks up other queues."""
    _REPLAY[entry.kind](queue, entry, body, find)


def entry_bytes(
    kind: int,
    queue: int,
    key: int,
    at: int = 0,
    *,
    priority: int = 0,
    number: int = 0,
    details: Any = None,
    body: bytes = b"",
) -> bytes:
    """Encode one entry. The meaning of `number` and `at` depends on the kind."""
    packed = b"" if details is None else _pack(details)
    times = at & _LOW, at >> _LOW_BITS
    return HEAD.pack(kind, priority, number, queue, key, *times, len(packed)) + packed + body


_ENCODE: dict[type[e.Event], Callable[[Any, int], list[bytes]]] = {
    e.Sent: lambda x, q: [sent_entry(q, record) for record in x.records],
    e.Scheduled: lambda x, q: [sent_entry(q, record, SCHEDULED, x.due) for record in x.records],
    e.CameDue: lambda x, q: [entry_bytes(CAME_DUE, q, x.record.key, x.at)],
    e.Rescheduled: lambda x, q: [entry_bytes(RESCHEDULED, q, x.record.key, x.due)],
    e.Leased: lambda x, q: [leased_entry(q, lease) for lease in x.leases],
    e.Hidden: lambda x, q: [leased_entry(q, lease) for lease in x.leases],
    e.Acknowledged: lambda x, q: [acknowledged_entry(q, lease) for lease in x.leases],
    e.Returned: lambda x, q: [
        entry_bytes(RETURNED, q, x.lease.record.key, x.at, details=(x.outcome, x.due))
    ],
    e.Released: lambda x, q: [entry_bytes(RELEASED, q, x.lease.record.key, number=int(x.to_front))],
    e.Extended: lambda x, q: [
        entry_bytes(EXTENDED, q, x.lease.record.key, x.deadline, details=x.timeout)
    ],
    e.Died: lambda x, q: [
        entry_bytes(DIED, q, x.lease.record.key, x.at, details=(x.outcome, x.reason))
    ],
    e.DiedInLine: lambda x, q: [entry_bytes(DIED_IN_LINE, q, x.record.key, x.at, details=x.reason)],
    e.Redriven: lambda x, q: [
        entry_bytes(REDRIVEN, q, 0, x.at, details=(x.target.name, [r.key for r in x.records]))
    ],
    e.Removed: lambda x, q: [entry_bytes(REMOVED, q, 0, details=x.keys)],
    e.Purged: lambda x, q: [entry_bytes(PURGED, q, 0)],
}


def _new_record(entry: Entry, body: Any) -> Record:
    attributes, group, deduplication = entry.details or (None, None, None)
    extra = Extra(group, deduplication) if group or deduplication else None
    return Record(entry.key, body, entry.priority, 0, attributes, extra)


def _lease(queue: Queue, entry: Entry) -> Lease:
    """Return the lease of an entry; create it if it was not logged because the disk was full."""
    lease = queue.leases.find(entry.key)
    if lease is None:
        record = _taken_out(queue, entry.key)
        lease = Lease(record, record.deliveries + 1, entry.at, entry.at, 0, record.extra)
        apply.leased_out_of_turn(queue, lease)
    return lease


def _taken_out(queue: Queue, key: int) -> Record:
    """Take out a message whose delivery may not have been logged: see `write_if_space`."""
    record = apply.taken_out(queue, key)
    if record is None:
        raise ReplayError(f"message {key} is not in {queue.name!r}")
    return record


def _scheduled(queue: Queue, entry: Entry) -> Record:
    record = queue.schedule.find(entry.key)
    if record is None:
        raise ReplayError(f"message {entry.key} of {queue.name!r} is not scheduled")
    return record


def _replay_leased(queue: Queue, entry: Entry, body: Any, find: object) -> None:
    timeout, number = entry.details
    ready = lines.find(queue, entry.key)
    record = ready or _taken_out(queue, entry.key)
    lease = Lease(record, number, entry.at, entry.at + timeout, timeout, record.extra)
    if ready is None:
        apply.leased_out_of_turn(queue, lease)
    else:
        apply.hidden(queue, [lease])


def _replay_redriven(queue: Queue, entry: Entry, body: Any, find: Callable[[str], Queue]) -> None:
    target, keys = entry.details
    records: list[Record] = []
    for key in keys:
        record = lines.find(queue, key)
        if record is None:
            record = _taken_out(queue, key)
            lines.join(queue, record)
        records.append(record)
    apply.redriven(queue, e.Redriven(records, find(target), entry.at))


_REPLAY: dict[int, Callable[[Queue, Entry, Any, Callable[[str], Queue]], None]] = {
    SENT: lambda q, x, body, _: apply.sent(q, e.Sent([_new_record(x, body)])),
    SCHEDULED: lambda q, x, body, _: apply.scheduled(q, [_new_record(x, body)], x.at),
    CAME_DUE: lambda q, x, _, __: apply.came_due(q, e.CameDue(_scheduled(q, x), x.at)),
    RESCHEDULED: lambda q, x, _, __: apply.rescheduled(q, _scheduled(q, x), x.at),
    LEASED: _replay_leased,
    ACKNOWLEDGED: lambda q, x, _, __: apply.acknowledged(q, e.Acknowledged([_lease(q, x)])),
    RETURNED: lambda q, x, _, __: apply.returned(q, e.Returned(_lease(q, x), x.at, *x.details)),
    RELEASED: lambda q, x, _, __: apply.released(q, e.Released(_lease(q, x), bool(x.number))),
    EXTENDED: lambda q, x, _, __: apply.extended(q, _lease(q, x), x.at),
    DIED: lambda q, x, _, __: apply.died(q, e.Died(_lease(q, x), x.at, *x.details)),
    DIED_IN_LINE: lambda q, x, _, __: apply.bury(q, _taken_out(q, x.key), x.details, x.at),
    REDRIVEN: _replay_redriven,
    REMOVED: lambda q, x, _, __: apply.removed(q, x.details),
    PURGED: lambda q, _, __, ___: apply.purged(q),
}
