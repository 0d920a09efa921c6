"""The segment being written: space allocated ahead, frames, and the footer.

Space is allocated before a record is accepted: `planned` is where the accepted records will end,
and never exceeds `reserved`, so a write never meets a full disk. The last part of the space is for
urgent records, and there is always space for the footer. A segment `for_urgent` was made from the
log's reserve and takes urgent records only.
Call it with the log's lock held (`fits`, `grow`) or as the leader (`write`, `seal`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from pillarbox.log.directory import LogDirectory, new_spare_name, segment_name
from pillarbox.log.disk import Disk, has_no_space, sync, write_all
from pillarbox.log.frame import (
    DATA,
    FOOTER,
    HEADER_BYTES,
    EncodedRecords,
    FrameHeader,
    encode_records,
)
from pillarbox.log.layout import BLOCK_BYTES, FrameIndex, SegmentHeader, index_stride
from pillarbox.log.segments import Segment, footer_bytes_max

CHUNK_BYTES = 1 << 20
JOIN_BYTES_MAX = 64 << 10
URGENT_BYTES_MAX = 256 << 10
_ZEROS = bytes(256 << 10)
#: The most that a frame takes beyond its records: header and padding.
FRAME_OVERHEAD_BYTES = HEADER_BYTES + 24


def urgent_bytes(segment_bytes: int) -> int:
    """Return the space that only urgent records may use."""
    return min(URGENT_BYTES_MAX, segment_bytes // 16)


def capacity_for(segment_bytes: int, cost_bytes: int) -> int:
    """Return the size of a segment that can hold a frame of `cost_bytes`."""
    fixed = BLOCK_BYTES + urgent_bytes(segment_bytes)
    need = fixed + cost_bytes + footer_bytes_max(segment_bytes, index_stride(segment_bytes))
    if need <= segment_bytes:
        return segment_bytes
    return fixed + cost_bytes + footer_bytes_max(2 * need, index_stride(2 * need))


def zero_fill(disk: Disk, handle: int, start: int, end: int) -> None:
    """Write zeros, so that a later sync of these blocks needs no metadata."""
    disk.allocate(handle, start, end - start)
    while start < end:
        piece = _ZEROS[: end - start] if end - start < len(_ZEROS) else _ZEROS
        write_all(disk, handle, [piece], start)
        start += len(piece)


def clear_from(disk: Disk, handle: int, end: int, entries: int) -> int:
    """Erase everything after the frames, on disk; returns the new size of the file.

    Keeps the space for a footer with this many entries, as the disk may be full.
    """
    size = min(disk.size(handle), end + footer_bytes_max(entries, 1))
    disk.truncate(handle, size)
    write_all(disk, handle, [bytes(size - end)], end)
    sync(disk, handle)
    return size


class SegmentWriter:
    """One open segment file, written from the end of its frames on."""

    def __init__(
        self,
        disk: Disk,
        handle: int,
        segment: Segment,
        capacity: int,
        reserved: int,
        *,
        for_urgent: bool = False,
    ) -> None:
        self._disk = disk
        self._handle = handle
        self._codec = segment.header.codec
        self._urgent_bytes = urgent_bytes(capacity)
        stride = index_stride(capacity)
        self._footer_bytes = footer_bytes_max(capacity, stride)
        self.segment = segment
        self.capacity = capacity
        self.for_urgent = for_urgent  # takes no other records
        self.reserved = reserved
        self.planned = segment.end_offset
        self._index_at = 0  # the next frame to index is at or after this offset
        if segment.index.stride != stride:
            entries, segment.index = segment.index, FrameIndex(stride)
            for entry in entries:
                segment.index.add(*entry)

    def fits(self, cost_bytes: int, *, urgent: bool = False) -> bool:
        """Return whether `cost_bytes` more fit in the allocated space."""
        return self.planned + cost_bytes <= (self.urgent_end if urgent else self.plain_end)

    def grow(self, cost_bytes: int) -> bool:
        """Allocate space for `cost_bytes`; False if the segment would become too long."""
        need = self.planned + cost_bytes + self._footer_bytes + self._urgent_bytes
        if need > self.capacity:
            return False
        end = min(self.capacity, max(need, self.reserved + CHUNK_BYTES))
        try:
            zero_fill(self._disk, self._handle, self.reserved, end)
        except OSError as error:
            if has_no_space(error):  # free what was allocated
                self._disk.truncate(self._handle, self.reserved)
            raise
        self.reserved = end
        return True

    @property
    def reserved(self) -> int:
        """How much of the file is allocated on disk."""
        return self._reserved

    @reserved.setter
    def reserved(self, end: int) -> None:
        self._reserved = end
        self.urgent_end = end - self._footer_bytes
        self.plain_end = 0 if self.for_urgent else self.urgent_end - self._urgent_bytes

    @property
    def empty(self) -> bool:
        """Whether no record was ever accepted."""
        return self.planned == BLOCK_BYTES

    def refuse_plain(self) -> None:
        """Take urgent records only, until `accept_plain`."""
        self.plain_end = 0

    def accept_plain(self) -> None:
        self.reserved = self._reserved

    def write_single(self, record: bytes, time_ns: int, synced_index: int) -> int:
        """`write_records` for one small record, on the hot path; returns the index after it."""
        segment = self.segment
        position, index = segment.end_offset, segment.end_index
        payload, size = encode_records((record,))
        head = self._codec.encode(DATA, position, index, time_ns, synced_index, payload, 1, size)
        frame = head + payload
        write_all(self._disk, self._handle, (frame,), position)
        if position >= self._index_at:
            segment.index.add(index, time_ns, position)
            self._index_at = segment.index.offsets[-1] + segment.index.stride
        segment.min_time_ns = segment.min_time_ns or time_ns
        segment.max_time_ns = time_ns
        segment.frames += 1
        segment.end_offset = position + len(frame)
        segment.end_index = index = index + 1
        return index

    def write_records(self, records: Sequence[bytes], time_ns: int, synced_index: int) -> None:
        """Write the records as one frame, without syncing."""
        payload, data_bytes = encode_records(records)
        self.write_frame(DATA, payload, time_ns, synced_index, len(records), data_bytes)

    def write_frame(
        self,
        kind: int,
        payload: bytes,
        time_ns: int,
        synced_index: int,
        count: int = 0,
        data_bytes: int = 0,
        flags: int = 0,
    ) -> FrameHeader:
        segment = self.segment
        offset, index = segment.end_offset, segment.end_index
        head = self._codec.encode(
            kind, offset, index, time_ns, synced_index, payload, count, data_bytes, flags
        )
        # Measured: for small payloads a copy costs less than a second part in the system call.
        parts = (head + payload,) if len(payload) <= JOIN_BYTES_MAX else (head, payload)
        write_all(self._disk, self._handle, parts, offset)
        header = FrameHeader(
            kind, offset, len(payload), index, time_ns, synced_index, count, data_bytes, flags
        )
        if kind != FOOTER:
            segment.add(header)
        return header

    def sync(self) -> None:
        sync(self._disk, self._handle)

    def seal(self, synced_index: int) -> None:
        """Write the footer and truncate the file there, without syncing."""
        segment = self.segment
        payload = segment.encode_footer()
        segment.size_bytes = segment.end_offset + HEADER_BYTES + len(payload)
        self._disk.truncate(self._handle, segment.size_bytes)
        self.write_frame(FOOTER, payload, segment.max_time_ns, synced_index)

    def close(self) -> None:
        self._disk.close(self._handle)


def cost_of(records: Sequence[bytes] | EncodedRecords) -> int:
    """Return the most that these records can take on disk."""
    if isinstance(records, EncodedRecords):
        return FRAME_OVERHEAD_BYTES + len(records.payload)
    return FRAME_OVERHEAD_BYTES + 4 * len(records) + sum(map(len, records))


def create_segment(
    directory: LogDirectory,
    spare: str | None,
    header: SegmentHeader,
    capacity: int,
    *,
    for_urgent: bool = False,
) -> SegmentWriter:
    """Create a segment from a spare or a new file: sync the header first, then rename.

    On a full disk, raises OSError(ENOSPC) and changes nothing but a spare file.
    """
    disk, name = directory.disk, segment_name(header.base_index)
    source = spare or new_spare_name()
    handle = directory.open(source, write=True, create=spare is None)
    try:
        reserved = disk.size(handle)
        first = min(capacity, CHUNK_BYTES)
        if reserved < first:
            zero_fill(disk, handle, reserved, first)
            reserved = first
        write_all(disk, handle, [header.encode()], 0)
        sync(disk, handle)
        directory.rename(source, name)
        directory.sync()
    except OSError as error:
        disk.close(handle)
        if has_no_space(error) and spare is None:
            directory.unlink(source)
        raise
    segment = Segment(name, header, index_stride(capacity))
    reserved = min(reserved, capacity)
    return SegmentWriter(disk, handle, segment, capacity, reserved, for_urgent=for_urgent)


def new_epoch() -> int:
    """Random, so that frames of a file's earlier use are never valid."""
    return secrets.randbits(64)
