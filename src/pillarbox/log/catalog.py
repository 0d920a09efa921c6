"""What is known of each segment of a log, in order, and how to find one by index or time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from pillarbox.log.disk import Disk
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

#: A footer is at most 4,096 entries; anything that claims to be longer is not a footer.
FOOTER_BYTES_MAX = 1 << 20


@dataclass(slots=True, eq=False)
class Segment:
    """One segment of the log. An adopted one's frames count from 0, not from `base_index`."""

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
    #: Whether every frame was on disk when the footer was written: not so at level os.
    proven: bool = False
    #: The adopted segments that its last commit names, and their epochs, once somebody asked.
    adopted: dict[str, int | None] | None = None

    @property
    def shift(self) -> int:
        """What to add to a frame's index to get the log's."""
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
    """The log's segments in order. Replaced lists, never changed ones: readers need no lock."""

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
        """The segment that holds (or will hold) the index."""
        segments, bases = self._view
        place = bisect_right(bases, index)
        return segments[place - 1] if place else None

    def after(self, segment: Segment) -> Segment | None:
        segments = self.segments
        place = segments.index(segment) + 1 if segment in segments else len(segments)
        return segments[place] if place < len(segments) else None


def read_header(disk: Disk, handle: int, path: str) -> SegmentHeader | None:
    return decode_segment_header(disk.pread(handle, BLOCK_BYTES, 0), path)


def read_footer(disk: Disk, handle: int, header: SegmentHeader) -> Footer | None:
    """The footer at the end of a sealed file; None if there is none, or not a whole one."""
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
    """The segment described by its own header and footer; None unless both are whole."""
    path, base_index = f"{directory}/{name}", base_of_name(name)
    handle = disk.open(path)
    try:
        header = read_header(disk, handle, path)
        if header is None:
            return None
        footer = read_footer(disk, handle, header)
        if footer is None:
            return None
        segment = Segment(name, base_index, base_index, header, footer.index)
        segment.seal(footer, disk.size(handle))
        return segment
    finally:
        disk.close(handle)
