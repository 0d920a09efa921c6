"""The history in a log's directory: partitioned by segments, read from memory-mapped files.

Tasks get `Piece`s: each a part of one segment, with the file offset of a frame near its start. A
piece includes the segment's epoch, so a file that was recycled meanwhile is never misread.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pillarbox.log import LogReader, RealDisk
from pillarbox.log.directory import LogDirectory
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.segments import Segment, read_header
from pillarbox.mailbox.data_directory import DataDirectory
from pillarbox.mailbox.message_ids import Names
from pillarbox.spark.columns import Columns, Rows
from pillarbox.spark.errors import DataLossError
from pillarbox.spark.events import event_rows, read_names
from pillarbox.spark.history import History, Outline, RowScan
from pillarbox.spark.location import data_directory_of
from pillarbox.spark.options import ReadOptions

_MARKS_PER_SEGMENT = 256


class Piece(NamedTuple):
    """A range of records of one segment, and a frame at or before the first of them."""

    segment: str
    epoch: int
    start: int
    stop: int
    frame_index: int
    frame_offset: int


class FileHistory(History):
    """The history in one log's directory. A writer may be appending to it."""

    def __init__(self, url: str) -> None:
        self.data = data_directory_of(url)
        self._log = LogReader(self.data.log, RealDisk())
        self._indexed_to = 0
        self.refresh()

    def refresh(self) -> None:
        self._log.refresh()
        self.first, self.end = self._log.first_index, self._log.end_index

    def close(self) -> None:
        self._log.close()

    def scan(self, options: ReadOptions, schema: Any) -> FileScan:
        names = self.names()
        return FileScan(options, Columns(schema, mailbox=names is not None), self.data, names)

    def names(self) -> Names | None:
        """Return the queue names of a store; None for a plain log."""
        store = self.data.store
        return None if store is None else read_names(self._log, store)

    def index_at_time(self, time_ns: int) -> int:
        return self._log.index_at_time(time_ns)

    # -- planning --------------------------------------------------------------------------

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        return self._outline(start, end, bytes_max).limit(start, end, bytes_max)

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Piece]]:
        spans = list(self._spans(start, end))
        return [
            [
                _piece(segment, max(low, at), min(high, stop))
                for segment, at, stop in spans
                if at < high and low < stop
            ]
            for low, high in self._outline(start, end).ranges(start, end, bytes_max, count_min)
        ]

    def _outline(self, start: int, end: int, bytes_max: int | None = None) -> Outline:
        """Return an outline from the segments' indices, for `bytes_max` bytes or all."""
        marks: list[tuple[int, int]] = []
        before, enough = 0, None
        for segment, _, stop in self._spans(start, end):
            marks += _marks(segment, stop, before)
            before = marks[-1][1]
            if bytes_max is not None:
                # Add the whole first segment, because the start may be anywhere in it.
                enough = before + bytes_max if enough is None else enough
                if before >= enough:
                    break
        return Outline(marks)

    def _spans(self, start: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield the part of each segment between two indices."""
        segments = self._log._catalog.segments
        for number, segment in enumerate(segments):
            last = number == len(segments) - 1
            stop = end if last else min(end, segments[number + 1].base_index)
            low = max(start, segment.base_index)
            if low < stop:
                if not segment.sealed:
                    self._index(segment, stop)
                yield segment, low, stop

    def _index(self, segment: Segment, stop: int) -> None:
        """Scan the new frames of the open segment once, so that tasks need not."""
        indexed = max(segment.base_index, min(self._indexed_to, stop))
        for _ in self._log.blocks(indexed, stop):
            pass
        self._indexed_to = max(self._indexed_to, stop)


@dataclass(frozen=True)
class FileScan(RowScan):
    """Reads pieces of the history in tasks. Executors must see the same directory."""

    data: DataDirectory
    names: Names | None

    def rows(self, pieces: Sequence[Piece]) -> Iterator[Rows]:
        options = self.options
        lossy = not options.fail_on_loss
        batches = read_pieces(self.data.log, options.url, pieces, lossy=lossy)
        if self.names is None:
            return map(LogRows, batches)
        return event_rows(batches, self.names, self._names_now, options.kinds, self.data.queue)

    def _names_now(self) -> Names:
        with contextlib.closing(FileHistory(self.options.url)) as history:
            names = history.names()
        assert names is not None
        return names


class LogRows:
    """Records of a plain log."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def column(self, name: str) -> Any:
        stored = _OF_LOG.get(name)
        return self._batch.column(stored) if stored is not None else None


_OF_LOG = {"index": "index", "body": "record", "enqueued_at": "time", "time": "time"}


def read_pieces(
    directory: str, url: str, pieces: Sequence[Piece], *, lossy: bool = False
) -> Iterator[Any]:
    """Yield record batches (index, time, record) of the pieces, in order, in any process.

    If `lossy`, skip pieces that are gone.
    """
    from pillarbox.log.arrow import read_segment  # noqa: PLC0415 - behind an extra

    log = LogDirectory(RealDisk(), directory)
    for piece in pieces:
        try:
            segment = _reopen(log, piece)
            yield from read_segment(log, segment, piece.start, piece.stop)
        except FileNotFoundError as error:
            if not lossy:
                raise DataLossError(url, piece.start, piece.stop) from error


def _marks(segment: Segment, stop: int, before: int) -> list[tuple[int, int]]:
    """Return marks (index, bytes before it) for some frames of a segment and for its end."""
    index = segment.index
    step = 1 + len(index.offsets) // _MARKS_PER_SEGMENT
    frames = zip(index.first_indices[::step], index.offsets[::step], strict=False)
    marks = [(first, before + offset) for first, offset in frames]
    if segment.sealed:
        return [*marks, (segment.end_index, before + segment.size_bytes)]
    size = (index.offsets[-1] if index.offsets else BLOCK_BYTES) + index.stride
    return [*marks, (max(stop, marks[-1][0] if marks else 0), before + size)]


def _piece(segment: Segment, start: int, stop: int) -> Piece:
    index = segment.index
    entry = bisect_right(index.first_indices, start) - 1
    if entry < 0:
        frame = segment.header.base_index, BLOCK_BYTES
    else:
        frame = index.first_indices[entry], index.offsets[entry]
    return Piece(segment.name, segment.header.epoch, start, stop, *frame)


def _reopen(directory: LogDirectory, piece: Piece) -> Segment:
    with directory.opened(piece.segment) as handle:
        header = read_header(directory.disk, handle, piece.segment)
    if header is None or header.epoch != piece.epoch:
        raise FileNotFoundError(piece.segment)  # recycled, so its records are gone
    segment = Segment(piece.segment, header, stride=1)
    segment.index.add(piece.frame_index, 0, piece.frame_offset)
    return segment
