"""The history of a broker's queue, read over HTTP: executors need no disk shared with the broker.

Requests use the broker's own protocol and access keys. The broker sends the journal entries of the
queue in Arrow's layout, so there is no Python work per entry here.
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
from pillarbox.mailbox.message_ids import Names
from pillarbox.spark.columns import Columns, Rows
from pillarbox.spark.errors import DataLossError
from pillarbox.spark.events import event_rows
from pillarbox.spark.history import History, Outline, RowScan
from pillarbox.spark.location import without_secret
from pillarbox.spark.options import ReadOptions

Range = tuple[int, int]


class BrokerHistory(History):
    """The history of one queue. Indices are those of the broker's log, so they have gaps."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.refresh()

    def refresh(self) -> None:
        self._outline = _outline(self._url)
        self.first, self.end = self._outline.first, self._outline.end

    def index_at_time(self, time_ns: int) -> int:
        at = _outline(self._url, time_ns).at
        return self.end if at is None else at

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        return Outline(self._outline.marks).limit(start, end, bytes_max)

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Range]]:
        ranges = Outline(self._outline.marks).ranges(start, end, bytes_max, count_min)
        return [[each] for each in ranges]

    def scan(self, options: ReadOptions, schema: Any) -> BrokerScan:
        return BrokerScan(options, Columns(schema, mailbox=True), _names(self._outline))


@dataclass(frozen=True)
class BrokerScan(RowScan):
    """Reads ranges of the history in tasks, on any machine."""

    names: Names

    def rows(self, pieces: Sequence[Range]) -> Iterator[Rows]:
        batches = self._batches(pieces)
        return event_rows(batches, self.names, self._names_now, self.options.kinds)

    def _batches(self, pieces: Sequence[Range]) -> Iterator[Any]:
        url, wanted = self.options.url, self.options.kinds
        kinds = b""
        if wanted is not None:
            kinds = bytes(number for number, name in journal.KINDS.items() if name in wanted)
        with _connected(url) as (channels, queue):
            for start, stop in pieces:
                at = start
                while at < stop:
                    (page,) = channels.ask(queue, (Recall(at, stop, kinds),))
                    # Dropped by retention, or the broker was restored from a backup.
                    lost = page.first > at or page.end <= at
                    if lost and self.options.fail_on_loss:
                        raise DataLossError(without_secret(url), at, max(page.first, at + 1))
                    if page.count:
                        yield _batch(page)
                    at = max(page.end, page.first, at + 1)

    def _names_now(self) -> Names:
        return _names(_outline(self.options.url))


def _batch(page: Recalled) -> Any:
    """Return the entries as a record batch: index, time and bytes of each, without a copy."""
    count, payload = page.count, pa.py_buffer(page.records)
    indices = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(page.indices)])
    times = pa.Array.from_buffers(
        SCHEMA.field("time").type, count, [None, pa.py_buffer(page.times)]
    )
    buffers = [None, payload, payload.slice(offsets_bytes(count))]
    records = pa.Array.from_buffers(pa.binary(), count, buffers)
    return pa.RecordBatch.from_arrays([indices, times, records], schema=SCHEMA)


def _names(outline: Outlined) -> Names:
    return Names(outline.prefix, outline.names)


def _outline(url: str, time_ns: int | None = None) -> Outlined:
    with _connected(url) as (channels, queue):
        (outline,) = channels.ask(queue, (AskOutline(time_ns),))
    assert isinstance(outline, Outlined)
    return outline


@contextmanager
def _connected(url: str) -> Iterator[tuple[Channels, str]]:
    """Yield the connections to the broker and the name of the queue."""
    address, queue = address_of(url)
    channels = channels_to(address)
    channels.enter()
    try:
        yield channels, queue
    finally:
        channels.leave()
