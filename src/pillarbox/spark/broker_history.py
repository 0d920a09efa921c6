"""The history of a broker's queues, over HTTP: executors need no disk in common with the broker.

The broker is asked in its own protocol, with its keys, and sends the entries of the queue that
was named. They arrive in Arrow's layout, so there is no step for each of them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pillarbox.core import journal
from pillarbox.log.arrow import SCHEMA
from pillarbox.log.frame import offsets_bytes
from pillarbox.mailbox.broker.address import address_of
from pillarbox.mailbox.broker.channel import Channels, channels_to
from pillarbox.mailbox.broker.wire import Outline as AskOutline
from pillarbox.mailbox.broker.wire import Outlined, Recall, Recalled
from pillarbox.mailbox.names import Names
from pillarbox.spark.columns import Columns, Rows
from pillarbox.spark.errors import DataLossError
from pillarbox.spark.events import event_rows
from pillarbox.spark.history import History, RowScan
from pillarbox.spark.location import without_secret
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.outline import Outline

Range = tuple[int, int]


class BrokerHistory(History):
    """Indices are those of the log of the broker's store; a queue has some of them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.refresh()

    def refresh(self) -> None:
        self._known = _outline(self._url)
        self.first, self.end = self._known.first, self._known.end

    def index_at_time(self, time_ns: int) -> int:
        at = _outline(self._url, time_ns).at
        return self.end if at is None else at

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        return Outline(self._known.marks).limit(start, end, bytes_max)

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Range]]:
        ranges = Outline(self._known.marks).ranges(start, end, bytes_max, count_min)
        return [[each] for each in ranges]

    def scan(self, options: ReadOptions, schema: Any) -> BrokerScan:
        return BrokerScan(options, Columns(schema, mailbox=True), _names(self._known))


@dataclass(frozen=True)
class BrokerScan(RowScan):
    """Reads ranges of the history in tasks, on whatever machine."""

    names: Names

    def rows(self, pieces: Sequence[Range]) -> Iterator[Rows]:
        batches = self._batches(pieces)
        return event_rows(batches, self.names, self._names_now, self.options.kinds)

    def _batches(self, pieces: Sequence[Range]) -> Iterator[Any]:
        url, wanted = self.options.url, self.options.kinds
        kinds = b""
        if wanted is not None:
            kinds = bytes(number for number, name in journal.KINDS.items() if name in wanted)
        with _asking(url) as (channels, queue):
            for start, stop in pieces:
                at = start
                while at < stop:
                    (found,) = channels.ask(queue, (Recall(at, stop, kinds),))
                    # Gone: dropped by retention, or the broker was put back to an older state.
                    gone = found.first > at or found.end <= at
                    if gone and self.options.fail_on_loss:
                        raise DataLossError(without_secret(url), at, max(found.first, at + 1))
                    if found.count:
                        yield _batch(found)
                    at = max(found.end, found.first, at + 1)

    def _names_now(self) -> Names:
        return _names(_outline(self.options.url))


def _batch(found: Recalled) -> Any:
    """Entries as they came: index, time and bytes of each."""
    count, payload = found.count, pa.py_buffer(found.records)
    indices = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(found.indices)])
    times = pa.Array.from_buffers(
        SCHEMA.field("time").type, count, [None, pa.py_buffer(found.times)]
    )
    buffers = [None, payload, payload.slice(offsets_bytes(count))]
    records = pa.Array.from_buffers(pa.binary(), count, buffers)
    return pa.RecordBatch.from_arrays([indices, times, records], schema=SCHEMA)


def _names(known: Outlined) -> Names:
    return Names(known.prefix, known.names)


def _outline(url: str, time_ns: int | None = None) -> Outlined:
    with _asking(url) as (channels, queue):
        (known,) = channels.ask(queue, (AskOutline(time_ns),))
    assert isinstance(known, Outlined)
    return known


@contextmanager
def _asking(url: str) -> Iterator[tuple[Channels, str]]:
    """Connections to the broker, and the queue; they stay open until the block ends."""
    address, queue = address_of(url)
    channels = channels_to(address)
    channels.enter()
    try:
        yield channels, queue
    finally:
        channels.leave()
