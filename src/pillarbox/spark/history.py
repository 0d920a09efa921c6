"""The seam between the data source and what it reads: a history, addressed by index.

Planning happens on the driver (`end`, `limit`, `partitions`), reading in tasks, which get
`Piece`s: a part of one segment, with a hint where in the file it begins. A piece says which
file it means by the segment's epoch, so a file that was recycled meanwhile is never misread.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pillarbox.log import LogReader, RealDisk
from pillarbox.log.catalog import Segment, read_header
from pillarbox.log.layout import BLOCK_BYTES, FrameIndex, base_of_name
from pillarbox.spark.errors import DataLossError
from pillarbox.spark.place import Place, place_of


class Piece(NamedTuple):
    """Some records of one segment, and a frame at or before the first of them."""

    segment: str
    epoch: int
    start: int
    stop: int
    frame_index: int
    frame_offset: int


class FileHistory:
    """The history in one log's directory, beside its writer if there is one."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.place: Place = place_of(url)
        self._log = LogReader(self.place.log, RealDisk())
        self._indexed_to = 0

    @property
    def log(self) -> LogReader:
        return self._log

    @property
    def first(self) -> int:
        return self._log.first_index

    @property
    def end(self) -> int:
        return self._log.end_index

    def refresh(self) -> None:
        self._log.refresh()

    def close(self) -> None:
        self._log.close()

    def index_at_time(self, time_ns: int) -> int:
        return self._log.index_at_time(time_ns)

    # -- planning --------------------------------------------------------------------------

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        """Where to stop so that about `bytes_max` are read from `start` on; some always are."""
        budget = bytes_max
        for segment, low, high in self._spans(start, end):
            offsets = segment.index.offsets
            first, last = _offset(segment, low), self._offset_after(segment, high)
            if last - first <= budget:
                budget -= last - first
                continue
            place = bisect_right(offsets, first + budget) - 1
            cut = _index_of_entry(segment, place) if place >= 0 else low
            if cut > start:
                return min(cut, end)
            following = _index_of_entry(segment, place + 1)
            return min(following, high) if following > start else high
        return end

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int = 1
    ) -> list[list[Piece]]:
        """The records from `start` up to `end`, in parts of about `bytes_max` bytes, in order."""
        spans = list(self._spans(start, end))
        total = sum(self._offset_after(s, high) - _offset(s, low) for s, low, high in spans)
        size = max(1, min(bytes_max, -(-total // max(count_min, 1))))
        parts: list[list[Piece]] = []
        room = 0
        for segment, low, high in spans:
            at = low
            while at < high:
                if room <= 0:
                    parts.append([])
                    room = size
                stop = self._stop_within(segment, at, high, room)
                piece = _piece(segment, at, stop)
                room -= max(1, self._offset_after(segment, stop) - piece.frame_offset)
                parts[-1].append(piece)
                at = stop
        return parts

    def _stop_within(self, segment: Segment, low: int, high: int, room: int) -> int:
        """Where to cut a span so that about `room` bytes lie before the cut."""
        offset = _offset(segment, low)
        # A remainder that would be a small part of its own stays here.
        if self._offset_after(segment, high) - offset <= room * 5 // 4:
            return high
        place = bisect_right(segment.index.offsets, offset + room)
        cut = _index_of_entry(segment, place)
        return min(cut, high) if cut > low else high

    def _spans(self, start: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """The part of each segment that lies between two indices."""
        segments = self._log._catalog.segments
        for place, segment in enumerate(segments):
            last = place == len(segments) - 1
            stop = end if last else min(end, segments[place + 1].base_index)
            low = max(start, segment.base_index)
            if low < stop:
                if not segment.sealed:
                    self._index(segment, stop)
                yield segment, low, stop

    def _index(self, segment: Segment, stop: int) -> None:
        """Walk the new frames of the open segment once, so that tasks need not."""
        known = max(segment.base_index, min(self._indexed_to, stop))
        for _ in self._log.blocks(known, stop):
            pass
        self._indexed_to = max(self._indexed_to, stop)

    def _offset_after(self, segment: Segment, index: int) -> int:
        if segment.sealed and index >= segment.end_index:
            return segment.size_bytes
        place = bisect_right(segment.index.first_indices, index - 1 - segment.shift)
        offsets = segment.index.offsets
        if place < len(offsets):
            return offsets[place]
        return (offsets[-1] if offsets else BLOCK_BYTES) + segment.index.stride


def open_history(url: str) -> FileHistory:
    """The history that a URL names."""
    return FileHistory(url)


def read_pieces(
    place: Place, url: str, pieces: Sequence[Piece], *, fail_on_loss: bool
) -> Iterator[Any]:
    """Record batches (index, time, record) of the pieces, in order, in whatever process."""
    from pillarbox.log.arrow import read_segment  # noqa: PLC0415 - behind an extra

    disk = RealDisk()
    for piece in pieces:
        try:
            segment = _reopen(disk, place.log, piece)
            yield from read_segment(disk, place.log, segment, piece.start, piece.stop)
        except FileNotFoundError as error:
            if fail_on_loss:
                raise DataLossError(url, piece.start, piece.stop) from error


def position(history: FileHistory, option: str, text: str) -> int:
    """The index that an option names: earliest, latest, an index, or a time in ISO format."""
    from pillarbox.spark.options import time_ns  # noqa: PLC0415 - options know no history

    if text == "earliest":
        return history.first
    if text == "latest":
        return history.end
    if text.isdigit():
        return int(text)
    when = time_ns(option, text)
    return history.end if when > time.time_ns() else history.index_at_time(when)


def _piece(segment: Segment, start: int, stop: int) -> Piece:
    index, target = segment.index, start - segment.shift
    place = bisect_right(index.first_indices, target) - 1
    if place < 0:
        frame = segment.header.base_index, BLOCK_BYTES
    else:
        frame = index.first_indices[place], index.offsets[place]
    return Piece(segment.name, segment.header.epoch, start, stop, *frame)


def _offset(segment: Segment, index: int) -> int:
    return segment.index.floor_of_index(index - segment.shift)


def _index_of_entry(segment: Segment, place: int) -> int:
    """The log's index of an entry of the segment's index; its end if there is none."""
    known = segment.index.first_indices
    return known[place] + segment.shift if place < len(known) else segment.end_index


def _reopen(disk: RealDisk, directory: str, piece: Piece) -> Segment:
    handle = disk.open(f"{directory}/{piece.segment}")
    try:
        header = read_header(disk, handle, piece.segment)
    finally:
        disk.close(handle)
    if header is None or header.epoch != piece.epoch:
        raise FileNotFoundError(piece.segment)  # recycled: the same as gone
    index = FrameIndex(1)
    index.add(piece.frame_index, 0, piece.frame_offset)
    base = base_of_name(piece.segment)
    return Segment(piece.segment, base, base, header, index)
