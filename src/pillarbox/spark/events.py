"""Decodes the journal of a store into columns: a field of a million entries at a time.

Every entry begins with a fixed-size header (`core/journal.py`), so a field of all entries is one
slice of an Arrow array. Only entries with details (attributes, groups) are decoded one by one.
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
from pillarbox.mailbox.message_ids import NAMING, VARIANT, MessageIds, Names
from pillarbox.mailbox.store_files import read_snapshot, refuse_foreign
from pillarbox.spark.columns import Rows

_WITH_BODY = pa.array([journal.SENT, journal.SCHEDULED, journal.RESTATED], pa.uint8())
_NEW = pa.array([journal.SENT, journal.SCHEDULED], pa.uint8())
_WITHOUT_KEY = pa.array(
    [journal.REDRIVEN, journal.REMOVED, journal.PURGED, journal.IDENTITY, journal.DECLARED],
    pa.uint8(),
)
_WITHOUT_QUEUE = pa.array([journal.IDENTITY, journal.RESTATED], pa.uint8())
_KINDS = pa.array([journal.KINDS.get(kind) for kind in range(max(journal.KINDS) + 1)], pa.string())
# The offset and type of each field of the header: see journal.HEAD.
_FIELDS: dict[str, tuple[int, Any]] = {
    "kind": (0, pa.uint8()),
    "priority": (1, pa.uint8()),
    "queue": (4, pa.uint32()),
    "key": (8, pa.uint64()),
    "length": (28, pa.uint32()),
}
_HEAD_BYTES = journal.HEAD.size
# Arrow 26 fails on some arrays if no end is given.
_TO_THE_END = (1 << 31) - 1


def read_names(log: LogReader, store: str) -> Names:
    """Return the queue names of a store, from its snapshot and the entries after it."""
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
    """Return one field of the header of every record."""
    start, kind = _FIELDS[name]
    width = kind.bit_width // 8
    raw = pc.binary_slice(records, start, start + width)
    return pa.Array.from_buffers(kind, len(raw), [None, raw.buffers()[2]], offset=raw.offset)


class Events:
    """The entries of one record batch, as columns that are decoded on demand."""

    def __init__(self, batch: Any, names: Names) -> None:
        self._names = names
        self.index, self.time = batch.column("index"), batch.column("time")
        self.records = batch.column("record")
        self._kind = head_field(self.records, "kind")
        self._queue = head_field(self.records, "queue")

    def __len__(self) -> int:
        return len(self.records)

    def select(self, queue: str | None, kinds: frozenset[str] | None) -> None:
        """Keep only the entries of this queue and these kinds (None: all)."""
        keep = None
        if kinds is not None:
            numbers = [number for number, name in journal.KINDS.items() if name in kinds]
            keep = pc.is_in(self._kind, pa.array(numbers, pa.uint8()))
        if queue is not None:
            wanted = [number for number, name in self._names.queues.items() if name == queue]
            in_queue = pc.and_(
                pc.is_in(self._queue, pa.array(wanted, pa.uint32())),
                pc.invert(pc.is_in(self._kind, _WITHOUT_QUEUE)),
            )
            keep = in_queue if keep is None else pc.and_(keep, in_queue)
        if keep is not None:
            self.index, self.time = self.index.filter(keep), self.time.filter(keep)
            self.records = self.records.filter(keep)
            self._kind, self._queue = self._kind.filter(keep), self._queue.filter(keep)

    def unknown_queues(self) -> bool:
        """Return whether an entry belongs to a queue created after the names were read."""
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
        queues = self._names.queues
        names = pa.array([queues.get(n) for n in range(max(queues, default=0) + 1)], pa.string())
        known = pc.less(self._queue, pa.scalar(len(names), pa.uint32()))
        nameless = pc.or_(self._kinds_in(_WITHOUT_QUEUE), pc.invert(known))
        return names.take(pc.if_else(nameless, pa.scalar(None, pa.uint32()), self._queue))

    def _keys(self) -> Any:
        keys = head_field(self.records, "key")
        return pc.if_else(self._kinds_in(_WITHOUT_KEY), pa.scalar(None, pa.uint64()), keys)

    def _ids(self) -> Any:
        """Return the message id of each key, as `MessageIds` formats it."""
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
        # A key is the time of its allocation in nanoseconds, divided by two.
        nanoseconds = pc.multiply(self._keys().cast(pa.int64()), pa.scalar(2, pa.int64()))
        return nanoseconds.cast(pa.timestamp("ns", "UTC"))

    def _bodies(self) -> Any:
        bodies = pc.binary_slice(self.records, _HEAD_BYTES, _TO_THE_END)
        has_body = self._kinds_in(_WITH_BODY)
        lengths = head_field(self.records, "length")
        # Details come before the body, so they have to be cut off.
        detailed = pc.and_(has_body, pc.greater(lengths, pa.scalar(0, pa.uint32())))
        if pc.any(detailed).as_py():
            pairs = zip(
                bodies.filter(detailed).to_pylist(),
                lengths.filter(detailed).to_pylist(),
                strict=True,
            )
            cut = [body[length:] for body, length in pairs]
            bodies = pc.replace_with_mask(bodies, detailed, pa.array(cut, pa.binary()))
        return pc.if_else(has_body, bodies, pa.scalar(None, pa.binary()))

    def _detailed(self, mask: Any) -> tuple[Any, list[journal.Entry]]:
        lengths = head_field(self.records, "length")
        mask = pc.and_(mask, pc.greater(lengths, pa.scalar(0, pa.uint32())))
        return mask, [journal.decode(entry) for entry in self.records.filter(mask).to_pylist()]

    def _attributes(self) -> Any:
        mask, entries = self._detailed(self._kinds_in(_NEW))
        kind = pa.map_(pa.string(), pa.string())
        attributes = [list((entry.details[0] or {}).items()) for entry in entries]
        return _scatter(attributes, mask, kind)

    def _details(self) -> Any:
        # A store's identity contains the secret of its receipt handles, so it is never shown.
        public = pc.not_equal(self._kind, pa.scalar(journal.IDENTITY, pa.uint8()))
        mask, entries = self._detailed(public)
        details = [msgspec.json.encode(_details_of(entry)).decode() for entry in entries]
        return _scatter(details, mask, pa.string())


def _details_of(entry: journal.Entry) -> Any:
    """Return the details; for a lease with its start, as its entry may be written later."""
    return (*entry.details, entry.at) if entry.kind == journal.LEASED else entry.details


def event_rows(
    batches: Iterator[Any],
    names: Names,
    names_now: Callable[[], Names],
    kinds: frozenset[str] | None,
    queue: str | None = None,
) -> Iterator[Rows]:
    """Yield entries of a store's journal as rows; reload the names if a queue is new."""
    for batch in batches:
        events = Events(batch, names)
        if events.unknown_queues():
            names = names_now()
            events = Events(batch, names)
        events.select(queue, kinds)
        if len(events):
            yield events


def _scatter(values: list[Any], mask: Any, kind: Any) -> Any:
    """Return an array with the values, in order, where the mask is true; null elsewhere."""
    if not values:
        return pa.nulls(len(mask), kind)
    positions = pc.subtract(pc.cumulative_sum(mask.cast(pa.int32())), pa.scalar(1, pa.int32()))
    return pa.array(values, kind).take(pc.if_else(mask, positions, pa.scalar(None, pa.int32())))
