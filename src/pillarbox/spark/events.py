"""The journal of a store as columns: heads are read a million at a time, not one by one.

An entry begins with a fixed head (`core/journal.py`), so a field of all entries is one slice of
an Arrow array. Only entries that have details (attributes, groups) are looked at singly.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pillarbox.core import journal
from pillarbox.log import LogReader, RealDisk
from pillarbox.mailbox.compactor import read_snapshot
from pillarbox.mailbox.message_ids import VARIANT, MessageIds
from pillarbox.mailbox.names import NAMING, Names
from pillarbox.mailbox.store_checks import refuse_foreign
from pillarbox.spark.columns import Rows

_WITH_BODY = pa.array([journal.SENT, journal.SCHEDULED, journal.RESTATED], pa.uint8())
_NEW = pa.array([journal.SENT, journal.SCHEDULED], pa.uint8())
_WITHOUT_KEY = pa.array(
    [journal.REDRIVEN, journal.REMOVED, journal.PURGED, journal.IDENTITY, journal.DECLARED],
    pa.uint8(),
)
_WITHOUT_QUEUE = pa.array([journal.IDENTITY, journal.RESTATED], pa.uint8())
_KINDS = pa.array([journal.KINDS.get(kind) for kind in range(max(journal.KINDS) + 1)], pa.string())
# Where each field of the head lies: see journal.HEAD.
_FIELDS: dict[str, tuple[int, Any]] = {
    "kind": (0, pa.uint8()),
    "priority": (1, pa.uint8()),
    "queue": (4, pa.uint32()),
    "key": (8, pa.uint64()),
    "length": (28, pa.uint32()),
}
_HEAD_BYTES = journal.HEAD.size
# Arrow 26 fails on some arrays if no end is named.
_TO_THE_END = (1 << 31) - 1


def read_names(log: LogReader, store: str) -> Names:
    """The names that a store has used so far, from its snapshot and what came after it."""
    state = read_snapshot(RealDisk(), store)
    refuse_foreign(state, store, log)
    names = Names.of(state)
    start = max(state.index if state is not None else 0, log.first_index)
    wanted = pa.array(NAMING, pa.uint8())
    for batch in log.read_arrow(start):
        records = batch.column("record")
        named = records.filter(pc.is_in(head_field(records, "kind"), wanted))
        names.learn_from(named.to_pylist())
    return names


def head_field(records: Any, name: str) -> Any:
    """One field of the head of every record."""
    start, kind = _FIELDS[name]
    width = kind.bit_width // 8
    raw = pc.binary_slice(records, start, start + width)
    return pa.Array.from_buffers(kind, len(raw), [None, raw.buffers()[2]], offset=raw.offset)


class Events:
    """The entries of one record batch, field by field, each worked out when it is asked for."""

    def __init__(self, batch: Any, names: Names) -> None:
        self._names = names
        self.index, self.time = batch.column("index"), batch.column("time")
        self.records = batch.column("record")
        self._kind = head_field(self.records, "kind")
        self._queue = head_field(self.records, "queue")

    def __len__(self) -> int:
        return len(self.records)

    def select(self, queue: str | None, kinds: frozenset[str] | None) -> None:
        """Keep only the entries of this queue and these kinds; None: of all."""
        keep = None
        if kinds is not None:
            numbers = [number for number, name in journal.KINDS.items() if name in kinds]
            keep = pc.is_in(self._kind, pa.array(numbers, pa.uint8()))
        if queue is not None:
            wanted = [number for number, name in self._names.queues.items() if name == queue]
            ours = pc.and_(
                pc.is_in(self._queue, pa.array(wanted, pa.uint32())),
                pc.invert(pc.is_in(self._kind, _WITHOUT_QUEUE)),
            )
            keep = ours if keep is None else pc.and_(keep, ours)
        if keep is not None:
            self.index, self.time = self.index.filter(keep), self.time.filter(keep)
            self.records = self.records.filter(keep)
            self._kind, self._queue = self._kind.filter(keep), self._queue.filter(keep)

    def unknown_queues(self) -> bool:
        """Whether an entry is of a queue that was declared after the names were read."""
        numbers = set(
            self._queue.filter(pc.invert(self._kinds_in(_WITHOUT_QUEUE))).unique().to_pylist()
        )
        return not numbers <= self._names.queues.keys()

    def column(self, name: str) -> Any:
        columns: dict[str, Any] = {
            "index": lambda: self.index,
            "time": lambda: self.time,
            "kind": lambda: _KINDS.take(self._kind),
            "queue": self._queue_names,
            "id": self._ids,
            "priority": lambda: self._where_new(head_field(self.records, "priority")),
            "enqueued_at": self._enqueued_at,
            "body": self._bodies,
            "attributes": self._attributes,
            "details": self._details,
        }
        return columns[name]()

    def _kinds_in(self, kinds: Any) -> Any:
        return pc.is_in(self._kind, kinds)

    def _where_new(self, values: Any) -> Any:
        return pc.if_else(self._kinds_in(_NEW), values, pa.scalar(None, values.type))

    def _queue_names(self) -> Any:
        known = self._names.queues
        names = pa.array([known.get(n) for n in range(max(known, default=0) + 1)], pa.string())
        inside = pc.less(self._queue, pa.scalar(len(names), pa.uint32()))
        nameless = pc.or_(self._kinds_in(_WITHOUT_QUEUE), pc.invert(inside))
        return names.take(pc.if_else(nameless, pa.scalar(None, pa.uint32()), self._queue))

    def _keys(self) -> Any:
        keys = head_field(self.records, "key")
        return pc.if_else(self._kinds_in(_WITHOUT_KEY), pa.scalar(None, pa.uint64()), keys)

    def _ids(self) -> Any:
        """What `MessageIds` makes of each key."""
        keys = self._keys()
        numbers = pc.bit_wise_or(pc.fill_null(keys, 0), pa.scalar(VARIANT, pa.uint64()))
        start = numbers.offset
        data = memoryview(numbers.buffers()[1])[8 * start : 8 * (start + len(numbers))]
        big_endian = array("Q", bytes(data))
        if sys.byteorder == "little":
            big_endian.byteswap()
        digits = big_endian.tobytes().hex().encode()
        ends = pa.array(range(0, len(digits) + 1, 16), pa.int32()).buffers()[1]
        text = pa.StringArray.from_buffers(len(keys), ends, pa.py_buffer(digits))
        store = pa.scalar(MessageIds(self._names.prefix or "").store_part)
        parts = pc.utf8_slice_codeunits(text, 0, 4), pc.utf8_slice_codeunits(text, 4, 16)
        ids = pc.binary_join_element_wise(store, pc.binary_join_element_wise(*parts, "-"), "")
        return pc.if_else(pc.is_valid(keys), ids, pa.scalar(None, pa.string()))

    def _enqueued_at(self) -> Any:
        # A key is half the nanoseconds of the moment at which it was given.
        nanoseconds = pc.multiply(self._keys().cast(pa.int64()), pa.scalar(2, pa.int64()))
        return nanoseconds.cast(pa.timestamp("ns", "UTC"))

    def _bodies(self) -> Any:
        bodies = pc.binary_slice(self.records, _HEAD_BYTES, _TO_THE_END)
        bearing = self._kinds_in(_WITH_BODY)
        lengths = head_field(self.records, "length")
        odd = pc.and_(bearing, pc.greater(lengths, pa.scalar(0, pa.uint32())))
        if pc.any(odd).as_py():
            cut = [
                body[length:]
                for body, length in zip(
                    bodies.filter(odd).to_pylist(), lengths.filter(odd).to_pylist(), strict=True
                )
            ]
            bodies = pc.replace_with_mask(bodies, odd, pa.array(cut, pa.binary()))
        return pc.if_else(bearing, bodies, pa.scalar(None, pa.binary()))

    def _detailed(self, mask: Any) -> tuple[Any, list[journal.Entry]]:
        lengths = head_field(self.records, "length")
        mask = pc.and_(mask, pc.greater(lengths, pa.scalar(0, pa.uint32())))
        return mask, [journal.decode(entry) for entry in self.records.filter(mask).to_pylist()]

    def _attributes(self) -> Any:
        mask, entries = self._detailed(self._kinds_in(_NEW))
        kind = pa.map_(pa.string(), pa.string())
        found = [list((entry.details[0] or {}).items()) for entry in entries]
        return _scatter(found, mask, kind)

    def _details(self) -> Any:
        # A store's identity holds what receipt handles are made with: nobody is shown that.
        told = pc.not_equal(self._kind, pa.scalar(journal.IDENTITY, pa.uint8()))
        mask, entries = self._detailed(told)
        found = [msgspec.json.encode(_details_of(entry)).decode() for entry in entries]
        return _scatter(found, mask, pa.string())


def _details_of(entry: journal.Entry) -> Any:
    """The details, and of a lease also its moment: its entry waits for others to be written."""
    return (*entry.details, entry.at) if entry.kind == journal.LEASED else entry.details


def event_rows(
    batches: Iterator[Any],
    names: Names,
    names_now: Callable[[], Names],
    kinds: frozenset[str] | None,
    queue: str | None = None,
) -> Iterator[Rows]:
    """Entries of a store's journal as rows; a queue that was declared meanwhile is asked for."""
    for batch in batches:
        events = Events(batch, names)
        if events.unknown_queues():
            names = names_now()
            events = Events(batch, names)
        events.select(queue, kinds)
        if len(events):
            yield events


def _scatter(values: list[Any], mask: Any, kind: Any) -> Any:
    """The values where the mask is true, in order; null elsewhere."""
    if not values:
        return pa.nulls(len(mask), kind)
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int32())), pa.scalar(1, pa.int32()))
    return pa.array(values, kind).take(pc.if_else(mask, places, pa.scalar(None, pa.int32())))
