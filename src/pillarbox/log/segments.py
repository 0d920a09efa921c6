"""The segments of a log: what each contains, and their order.

A sealed segment ends with a footer, which describes its contents and has the index by which
readers seek. Without a valid footer, a segment is scanned: frames are followed until one is not
valid. If a later frame proves by its `synced_index` that this position was once on disk, the
bytes are damaged; if none does, nothing there was ever confirmed, and it is a torn tail.
A header names the log, the first index and (from format 2 on) the random epoch of the previous
segment; only the link of the first segment is not checked, as that one may have been dropped.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pillarbox.log.directory import LogDirectory, base_of_name
from pillarbox.log.disk import Disk, Mapping
from pillarbox.log.errors import LogCorruptError
from pillarbox.log.frame import (
    ALIGN_BYTES,
    DATA,
    FOOTER,
    HEADER_BYTES,
    MARK_OFFSET,
    FrameCodec,
    FrameHeader,
)
from pillarbox.log.layout import (
    BLOCK_BYTES,
    FrameIndex,
    SegmentHeader,
    decode_segment_header,
    index_stride,
)
from pillarbox.mutex import Mutex

_FOOTER = struct.Struct("<QQqqQQQ")
_ENTRY = struct.Struct("<QqQ")
_TRAILER = struct.Struct("<Q8s")
_TRAILER_MAGIC = b"PBXSEAL\0"
#: The log id in a segment that was repaired without its header.
NO_ID = bytes(16)


class Segment:
    """What is known of one segment: from its footer, by a scan, or because it is written here."""

    def __init__(self, name: str, header: SegmentHeader, stride: int) -> None:
        self.name = name
        self.header = header
        self.base_index = self.end_index = base_of_name(name)
        self.index = FrameIndex(stride)
        self.end_offset = BLOCK_BYTES  # after the last frame
        self.frames = 0  # with records
        self.commit_offset = 0  # of the last commit on disk, or 0
        self.min_time_ns = self.max_time_ns = 0
        #: The log was on disk up to here when the last frame was written.
        self.synced_index = header.synced_index
        self.sealed = False
        self.size_bytes = 0

    @property
    def proven(self) -> bool:
        """Whether every frame was on disk when the footer was written (not so at level os)."""
        return self.sealed and self.synced_index >= self.end_index

    def add(self, frame: FrameHeader) -> None:
        """Count the next frame."""
        if frame.kind == DATA:
            self.index.add(frame.first_index, frame.time_ns, frame.offset)
            self.min_time_ns = self.min_time_ns or frame.time_ns
            self.frames += 1
        self.max_time_ns = frame.time_ns
        self.end_index = frame.end_index
        self.end_offset = frame.end_offset

    def encode_footer(self) -> bytes:
        """Return the payload of the footer frame."""
        head = _FOOTER.pack(
            self.header.base_index,
            self.end_index,
            self.min_time_ns,
            self.max_time_ns,
            self.frames,
            self.commit_offset,
            (len(self.index.offsets) << 32) | self.index.stride,
        )
        body = b"".join(_ENTRY.pack(*entry) for entry in self.index)
        return head + body + _TRAILER.pack(self.end_offset, _TRAILER_MAGIC)

    def decode_footer(self, frame: FrameHeader, payload: bytes) -> None:
        """Take the contents from a valid footer."""
        _, end, oldest, newest, frames, commit_offset, sizes = _FOOTER.unpack_from(payload)
        self.index = FrameIndex(sizes & 0xFFFFFFFF)
        entries = payload[_FOOTER.size : _FOOTER.size + (sizes >> 32) * _ENTRY.size]
        if entries:
            columns = zip(*_ENTRY.iter_unpack(entries), strict=True)
            self.index.first_indices, self.index.times, self.index.offsets = map(list, columns)
        self.end_index = end
        self.min_time_ns, self.max_time_ns = oldest, newest
        self.frames, self.commit_offset = frames, commit_offset
        self.synced_index = frame.synced_index
        self.end_offset, self.size_bytes = frame.offset, frame.end_offset
        self.sealed = True


def footer_bytes_max(capacity: int, stride: int) -> int:
    """Return the maximum size of the footer frame in a segment of this size."""
    return HEADER_BYTES + _FOOTER.size + _TRAILER.size + _ENTRY.size * (capacity // stride + 2)


def read_header(disk: Disk, handle: int, path: str) -> SegmentHeader | None:
    return decode_segment_header(disk.pread(handle, BLOCK_BYTES, 0), path)


def open_shared(directory: LogDirectory, segment: Segment) -> int:
    """Open a segment file under a shared lock, so that the writer does not recycle it.

    Raises FileNotFoundError if retention has dropped the segment.
    """
    disk, path = directory.disk, directory.path_of(segment.name)
    handle = disk.open(path)
    try:
        if disk.lock(handle, exclusive=False):
            header = read_header(disk, handle, path)
            if header is not None and header.epoch == segment.header.epoch:
                return handle
        raise FileNotFoundError(errno.ENOENT, "recycled since it was looked up", path)
    except BaseException:
        disk.close(handle)
        raise


def load_segment(directory: LogDirectory, name: str) -> Segment | None:
    """Load a segment's header and, if sealed, its footer; None without a valid header."""
    disk = directory.disk
    with directory.opened(name) as handle:
        header = read_header(disk, handle, directory.path_of(name))
        if header is None:
            return None
        size = disk.size(handle)
        segment = Segment(name, header, index_stride(size))
        tail = disk.pread(handle, _TRAILER.size, size - _TRAILER.size)
        if len(tail) == _TRAILER.size:
            offset, magic = _TRAILER.unpack(tail)
            if magic == _TRAILER_MAGIC and BLOCK_BYTES <= offset <= size - HEADER_BYTES:
                found = read_frame(disk, handle, header.codec, offset)
                if found is not None and found[0].end_offset == size:
                    segment.decode_footer(*found)
    return segment


def read_frame(
    disk: Disk, handle: int, codec: FrameCodec, offset: int
) -> tuple[FrameHeader, bytes] | None:
    """Return the valid frame at this offset, with its payload; None if there is none."""
    data = disk.pread(handle, HEADER_BYTES, offset)
    frame = codec.decode_header(data, 0, offset)
    if frame is None:
        return None
    data += disk.pread(handle, frame.payload_bytes, offset + HEADER_BYTES)
    return (frame, data[HEADER_BYTES:]) if codec.is_valid(frame, data, 0) else None


def scan(image: Mapping, name: str, header: SegmentHeader) -> Segment:
    """Return the segment up to its footer or its first invalid frame."""
    codec = header.codec
    segment = Segment(name, header, index_stride(len(image)))
    while True:
        end = segment.end_offset
        frame = codec.frame_at(image, end, end)
        if frame is None or frame.first_index != segment.end_index:
            segment.size_bytes = end
            return segment
        segment.synced_index = max(segment.synced_index, frame.synced_index)
        if frame.kind == FOOTER:
            segment.size_bytes = frame.end_offset
            segment.sealed = True
            return segment
        segment.add(frame)
        if frame.commits:
            segment.commit_offset = frame.offset


def valid_frames(
    image: Mapping, header: SegmentHeader, start: int = BLOCK_BYTES
) -> Iterator[FrameHeader]:
    """Yield every valid frame of this segment that starts at or after an offset."""
    codec = header.codec
    position = start
    # A recycled file contains frames of older epochs.
    while (marked := image.find(codec.mark, position + MARK_OFFSET)) >= 0:
        position = marked - MARK_OFFSET
        frame = None if position % ALIGN_BYTES else codec.frame_at(image, position, position)
        if frame is None:
            position += 1
            continue
        yield frame
        position = frame.end_offset


def evidence_of_damage(frames: Iterable[FrameHeader], end_index: int) -> FrameHeader | None:
    """Return the first of these frames that proves that records at `end_index` were once on disk.

    Given are the frames that follow an invalid one, and the index where that should start.
    """
    for frame in frames:
        # The second condition covers damaged frames without records.
        if frame.synced_index > end_index or frame.synced_index >= frame.first_index:
            return frame
    return None


def identity_of(headers: Sequence[SegmentHeader]) -> bytes | None:
    """Return the id of the log that wrote these segments; None if there are none."""
    ids = [header.log_id for header in headers]
    known = [log_id for log_id in ids if log_id != NO_ID]
    return known[-1] if known else ids[-1] if ids else None


def check_link(directory: LogDirectory, before: Sequence[Segment], segment: Segment) -> None:
    """Raise `LogCorruptError` if this segment can't follow those `before` it."""
    what = why_not_named(segment) or (_why_not_after(before[-1], segment) if before else None)
    if what is not None:
        raise LogCorruptError(directory.path_of(segment.name), what, 0, segment.base_index)


def _why_not_after(before: Segment, segment: Segment) -> str | None:
    if NO_ID != before.header.log_id != segment.header.log_id != NO_ID:
        return f"it belongs to another log than {before.name}"
    if contradicts(segment.header, before.header):
        return f"its header names another predecessor than {before.name}"
    return None


def why_not_named(segment: Segment) -> str | None:
    """Return why a segment can't have its name; None if it can."""
    if segment.base_index != segment.header.base_index:
        return f"its header says that it starts at index {segment.header.base_index}"
    return None


def contradicts(header: SegmentHeader, before: SegmentHeader) -> bool:
    """Return whether a header names another segment as its predecessor."""
    return header.previous_epoch is not None and header.previous_epoch != before.epoch


class Catalog:
    """The segments in order. Lists are replaced, never changed, so readers need no lock."""

    def __init__(self, segments: list[Segment]) -> None:
        self._lock = Mutex()
        self.replace(segments)

    def replace(self, segments: list[Segment]) -> None:
        self._view = (segments, [segment.base_index for segment in segments])

    @property
    def segments(self) -> list[Segment]:
        return self._view[0]

    @property
    def last(self) -> Segment | None:
        return self.segments[-1] if self.segments else None

    def add(self, segment: Segment) -> None:
        with self._lock:
            self.replace([*self.segments, segment])

    def drop(self, segment: Segment) -> None:
        with self._lock:
            self.replace([each for each in self.segments if each is not segment])

    def of_index(self, index: int) -> Segment | None:
        """Return the segment that contains (or will contain) the index."""
        segments, bases = self._view
        position = bisect_right(bases, index)
        return segments[position - 1] if position else None


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of a log; None means no limit. Pins and named tailers keep records longer."""

    age_seconds: float | None = None
    bytes: int | None = None


def first_to_keep(segments: Sequence[Segment], retention: Retention, now_ns: int) -> int:
    """Return the first index that the retention keeps."""
    total = sum(segment.size_bytes for segment in segments)
    for segment in segments:
        too_old = retention.age_seconds is not None and (
            segment.max_time_ns < now_ns - int(retention.age_seconds * 1e9)
        )
        too_large = retention.bytes is not None and total > retention.bytes
        if not segment.sealed or not (too_old or too_large):
            return segment.base_index
        total -= segment.size_bytes
    return segments[-1].end_index if segments else 0
