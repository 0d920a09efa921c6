"""The segments of a log in order: finding one by index, and which of them retention keeps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pillarbox.log.disk import Disk, opened
from pillarbox.log.frame import HEADER_BYTES, checksum_holds, checksum_seed, decode_header
from pillarbox.log.layout import (
    BLOCK_BYTES,
    STAGED,
    Footer,
    FrameIndex,
    SegmentHeader,
    base_of_name,
    decode_footer,
    decode_segment_header,
    trailer_offset,
)
from pillarbox.mutex import Mutex

#: A footer has at most 4,096 entries; anything longer is not a footer.
FOOTER_BYTES_MAX = 1 << 20


@dataclass(slots=True, eq=False)
class Segment:
    """One segment of the log. In an adopted one, frames count from 0, not from `base_index`."""

    name: str
    base_index: int
    end_index: int
    header: SegmentHeader
    index: FrameIndex
    size_bytes: int = 0
    min_time_ns: int = 0
    max_time_ns: int = 0
    commit_offset: int = 0
    sealed: bool = False
    #: Whether every frame was on disk when the footer was written, which level os does not ensure.
    proven: bool = False
    #: The adopted segments that its last commit names, with their epochs; read on demand.
    adopted: dict[str, int | None] | None = None

    @property
    def shift(self) -> int:
        """The difference between an index of the log and one in this file."""
        return self.base_index - self.header.base_index

    @property
    def staged(self) -> bool:
        return bool(self.header.flags & STAGED)

    def seal(self, footer: Footer, size_bytes: int) -> None:
        self.end_index = footer.end_index + self.shift
        self.index = footer.index
        self.min_time_ns, self.max_time_ns = footer.min_time_ns, footer.max_time_ns
        self.commit_offset = footer.commit_offset
        self.size_bytes = size_bytes
        self.sealed = True
        self.proven = footer.synced_index >= footer.end_index


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

    def add(self, segment: Segment) -> None:
        with self._lock:
            self.replace([*self.segments, segment])

    def drop_first(self) -> None:
        with self._lock:
            self.replace(self.segments[1:])

    def drop_last(self) -> None:
        with self._lock:
            self.replace(self.segments[:-1])

    def of_index(self, index: int) -> Segment | None:
        """The segment that contains (or will contain) the index."""
        segments, bases = self._view
        position = bisect_right(bases, index)
        return segments[position - 1] if position else None

    def after(self, segment: Segment) -> Segment | None:
        segments = self.segments
        position = segments.index(segment) + 1 if segment in segments else len(segments)
        return segments[position] if position < len(segments) else None


def read_header(disk: Disk, handle: int, path: str) -> SegmentHeader | None:
    return decode_segment_header(disk.pread(handle, BLOCK_BYTES, 0), path)


def read_footer(disk: Disk, handle: int, header: SegmentHeader) -> Footer | None:
    """The footer at the end of a sealed file; None if there is no valid one."""
    size = disk.size(handle)
    offset = trailer_offset(disk.pread(handle, 16, max(0, size - 16)))
    if offset is None or not BLOCK_BYTES <= offset <= size - HEADER_BYTES:
        return None
    if size - offset > FOOTER_BYTES_MAX:
        return None
    raw = disk.pread(handle, size - offset, offset)
    frame = decode_header(raw, 0, offset, header.epoch)
    if frame is None or frame.end_offset != size:
        return None
    seed = checksum_seed(header.log_id, header.epoch)
    head, payload = raw[:HEADER_BYTES], raw[HEADER_BYTES:]
    if not checksum_holds(seed, head, payload, offset):
        return None
    return decode_footer(payload, frame.synced_index)


def load_sealed(disk: Disk, directory: str, name: str) -> Segment | None:
    """A segment by its header and footer; None unless both are valid."""
    path, base_index = f"{directory}/{name}", base_of_name(name)
    with opened(disk, path) as handle:
        header = read_header(disk, handle, path)
        footer = read_footer(disk, handle, header) if header is not None else None
        if header is None or footer is None:
            return None
        segment = Segment(name, base_index, base_index, header, footer.index)
        segment.seal(footer, disk.size(handle))
        return segment


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of a log; None means no limit. Pins and named tailers keep records longer."""

    age_seconds: float | None = None
    bytes: int | None = None


def first_to_keep(segments: Sequence[Segment], retention: Retention, now_ns: int) -> int:
    """The first index that the retention keeps."""
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
