"""Reads frames by index and in blocks: only confirmed ones, and only with valid checksums.

A `FrameReader` serves any number of threads. It holds each open segment file under a shared
lock, so the writer (in whatever process) may delete it but never recycles it. Blocks are read
with pread, not through a mapping, because the writer may truncate a file.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from typing import NamedTuple, TypeVar

from pillarbox.log.directory import LogDirectory
from pillarbox.log.errors import LogCorruptError, RecordLostError
from pillarbox.log.frame import (
    DATA,
    FOOTER,
    HEADER_BYTES,
    LOST,
    FrameHeader,
    decode_record,
    decode_records,
    walk,
)
from pillarbox.log.segments import Segment, open_shared

K = TypeVar("K")
V = TypeVar("V")

BLOCK_READ_BYTES = 64 << 10
_OPEN_FILES_MAX = 16
_BLOCKS_MAX = 32
_CACHED_BYTES_MAX = 8 << 20  # a block of one large frame is not cached
WINDOW_BYTES = 32 << 10
_WINDOWS_MAX = 64


class Frame(NamedTuple):
    """A group of records that were written together."""

    first_index: int
    time_ns: int
    records: list[bytes]

    @property
    def end_index(self) -> int:
        return self.first_index + len(self.records)


class Block(NamedTuple):
    """Consecutive frames. `next_offset` is that of the frame after them."""

    frames: list[FrameHeader]
    data: bytes
    offset: int
    next_offset: int

    def records(self, header: FrameHeader) -> list[bytes]:
        return decode_records(self.data, header, header.offset - self.offset + HEADER_BYTES)

    def frame(self, header: FrameHeader) -> Frame:
        return Frame(header.first_index, header.time_ns, self.records(header))


class _File:
    """A segment file, open for reading until the last reference is dropped."""

    __slots__ = ("_disk", "codec", "epoch", "handle")

    def __init__(self, directory: LogDirectory, segment: Segment) -> None:
        self._disk = directory.disk
        self.epoch, self.codec = segment.header.epoch, segment.header.codec
        self.handle = open_shared(directory, segment)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._disk.close(self.handle)


class _Cache(OrderedDict[K, V]):
    """Drops the oldest entries."""

    def __init__(self, size_max: int) -> None:
        super().__init__()
        self._size_max = size_max

    def put(self, key: K, value: V) -> V:
        self[key] = value
        while len(self) > self._size_max:
            self.popitem(last=False)
        return value


class FrameReader:
    """Reads checked frames of one log. Thread-safe."""

    def __init__(self, directory: LogDirectory, *, indexing: bool) -> None:
        self._disk = directory.disk
        self._directory = directory
        # If the writer is in another process, the reader builds the index of the open segment.
        self._indexing = indexing
        self._lock = threading.RLock()  # a signal handler may read, too
        self._files: _Cache[int, _File] = _Cache(_OPEN_FILES_MAX)
        self._blocks: _Cache[tuple[int, int], Block] = _Cache(_BLOCKS_MAX)
        self._windows: _Cache[tuple[int, int], bytes] = _Cache(_WINDOWS_MAX)
        #: The last frame with several records.
        self._checked: tuple[Segment, FrameHeader, bytes] | None = None

    def record(self, segment: Segment, index: int, *, wait: bool = True) -> bytes:
        """Return one confirmed record. Only its own frame is checked.

        Without `wait`, BlockingIOError if it is not in memory.
        """
        checked = self._checked
        if checked is not None and checked[0] is segment:
            _, header, frame = checked
            if header.first_index <= index < header.end_index:
                return decode_record(frame, header, index - header.first_index)
        header, frame = self._frame_of(segment, index, wait=wait)
        if header.end_index - header.first_index > 1:
            self._checked = segment, header, frame
        return decode_record(frame, header, index - header.first_index)

    def _frame_of(self, segment: Segment, index: int, *, wait: bool) -> tuple[FrameHeader, bytes]:
        file = self._file(segment, wait=wait)
        start, stop = segment.index.range_of_index(index)
        data = self._window(segment, file, start, stop, wait=wait)
        position, size = walk(data, index)
        while not size and position:  # past the window: the index has no entry for it yet
            start += position
            data = self._disk.pread(file.handle, WINDOW_BYTES, start, wait=wait)
            position, size = walk(data, index)
        offset = start + position
        frame = data[position : position + size]
        if len(frame) < size <= self._disk.size(file.handle) - offset:
            frame = self._disk.pread(file.handle, size, offset, wait=wait)
        header = file.codec.frame_at(frame, 0, offset)
        if header is None or not header.first_index <= index < header.end_index:
            raise _damage(segment, offset, index)
        if header.kind == LOST:
            what = "this record was lost to damage, and the log was repaired without it"
            raise RecordLostError(segment.name, what, offset, index)
        return header, frame

    def _window(
        self, segment: Segment, file: _File, start: int, stop: int | None, *, wait: bool
    ) -> bytes:
        """Return the bytes between two entries of the index, cached because they never change."""
        if stop is None:
            return self._disk.pread(file.handle, WINDOW_BYTES, start, wait=wait)
        key = (segment.base_index, start)
        data = self._windows.get(key)
        if data is None:
            data = self._disk.pread(file.handle, stop - start, start, wait=wait)
            if len(data) <= WINDOW_BYTES:
                with self._lock:
                    self._windows.put(key, data)
        return data

    def block_of_index(self, segment: Segment, index: int, end_index: int) -> Block:
        """Return the block with `index`; `end_index` is the end of the confirmed records."""
        offset = segment.index.floor_of_index(index)
        while True:
            block = self.block(segment, offset, end_index)
            if not block.frames:
                raise _damage(segment, offset, index)
            if block.frames[-1].end_index > index:
                return block
            offset = block.next_offset

    def block(self, segment: Segment, offset: int, end_index: int) -> Block:
        """Return the confirmed frames from `offset` on, as many as one read returns."""
        key = (segment.base_index, offset)
        with self._lock:
            cached = self._blocks.get(key)
        if cached is not None:
            return cached
        block = self._read_block(segment, offset, end_index)
        # A short block at the growing end is not cached, as it would hide later frames.
        complete = block.next_offset - block.offset >= BLOCK_READ_BYTES // 2 or segment.sealed
        if block.frames and complete and len(block.data) <= _CACHED_BYTES_MAX:
            with self._lock:
                self._blocks.put(key, block)
        return block

    def forget(self, segment: Segment) -> None:
        """Close a dropped segment."""
        with self._lock:
            self._checked = None
            self._files.pop(segment.base_index, None)
            for key in [*self._blocks, *self._windows]:
                if key[0] == segment.base_index:
                    self._blocks.pop(key, None)
                    self._windows.pop(key, None)

    def close(self) -> None:
        with self._lock:
            self._checked = None
            self._files.clear()
            self._blocks.clear()
            self._windows.clear()

    def _file(self, segment: Segment, *, wait: bool = True) -> _File:
        with self._lock:
            file = self._files.get(segment.base_index)
            if file is None or file.epoch != segment.header.epoch:
                if not wait:  # reading its header may block
                    raise BlockingIOError(errno.EAGAIN, "the segment is not open")
                return self._files.put(segment.base_index, _File(self._directory, segment))
            return file

    def _read_block(self, segment: Segment, offset: int, end_index: int) -> Block:
        file = self._file(segment)
        size = BLOCK_READ_BYTES
        while True:
            data = self._disk.pread(file.handle, size, offset)
            frames, position, need = _parse(segment, file, data, offset, end_index)
            if frames or not need or len(data) < HEADER_BYTES:
                break
            if position:  # only commits without records, and more to read
                offset, size = offset + position, BLOCK_READ_BYTES
                continue
            if len(data) < size:
                raise _damage(segment, offset, segment.base_index)
            size = max(need, size * 2)
        if self._indexing and not segment.sealed:
            with self._lock:
                for frame in frames:
                    segment.index.add(frame.first_index, frame.time_ns, frame.offset)
        return Block(frames, data, offset, offset + position)


def _parse(
    segment: Segment, file: _File, data: bytes, offset: int, end_index: int
) -> tuple[list[FrameHeader], int, int]:
    """Return the confirmed frames in `data`, their end, and the size of a truncated next one.

    The size is 0 if there is no next frame.
    """
    frames: list[FrameHeader] = []
    position = 0
    expected: int | None = None
    while len(data) - position >= HEADER_BYTES:
        header = file.codec.decode_header(data, position, offset + position)
        if header is None or (expected is not None and header.first_index != expected):
            at_footer = segment.sealed and (expected or 0) >= segment.end_index
            if expected is not None and expected < end_index and not at_footer:
                raise _damage(segment, offset + position, expected)
            return frames, position, 0
        # A commit without records at the end may be half written.
        unconfirmed = header.first_index >= end_index or header.end_index > end_index
        if unconfirmed or header.kind == FOOTER:
            return frames, position, 0
        stop = position + HEADER_BYTES + header.payload_bytes
        if stop > len(data):
            return frames, position, stop - position
        if not file.codec.is_valid(header, data, position):
            raise _damage(segment, header.offset, header.first_index)
        if header.kind in (DATA, LOST):
            frames.append(header)
        expected, position = header.end_index, stop
    return frames, position, HEADER_BYTES


def _damage(segment: Segment, offset: int, index: int) -> LogCorruptError:
    what = "a confirmed frame is missing, truncated, or fails its checksum"
    return LogCorruptError(segment.name, what, offset, index)
