"""Reading a segment image frame by frame, and the rule that tells a torn tail from damage.

A scan follows frames whose checksums hold until one does not. What comes after that place is
searched for evidence: a whole frame of this segment whose `synced_index` covers the place
says that the bytes there were once on disk, so they are damaged, not torn. With no such frame
nothing there was ever confirmed on disk, and it is a torn tail.
Only recovery, verify and repair scan; readers go through `reader.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pillarbox.log.disk import Mapping
from pillarbox.log.frame import (
    ALIGN_BYTES,
    DATA,
    FOOTER,
    HEADER_BYTES,
    LOST,
    FrameHeader,
    checksum_holds,
    checksum_seed,
    decode_header,
    epoch_mark,
)
from pillarbox.log.layout import (
    BLOCK_BYTES,
    Footer,
    FrameIndex,
    SegmentHeader,
    decode_footer,
    index_stride,
)

Progress = Callable[[int], None]


@dataclass(slots=True)
class Scan:
    """What a segment holds up to the first place that is not a whole, fitting frame."""

    end_index: int
    end_offset: int
    index: FrameIndex
    footer: Footer | None = None
    footer_offset: int = 0
    commit_offset: int = 0
    frames: int = 0
    min_time_ns: int = 0
    max_time_ns: int = 0
    synced_index: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)


def frame_at(image: Mapping, seed: int, epoch: int, offset: int) -> FrameHeader | None:
    """The whole frame at `offset`, or None."""
    raw = image[offset : offset + HEADER_BYTES]
    header = decode_header(raw, 0, offset, epoch)
    if header is None:
        return None
    start = offset + HEADER_BYTES
    payload = image[start : start + header.payload_bytes]
    if len(payload) != header.payload_bytes:
        return None
    return header if checksum_holds(seed, raw, payload, offset) else None


def scan(image: Mapping, segment: SegmentHeader) -> Scan:
    """Follow the frames from the first one to the footer or to the first that does not fit."""
    seed, epoch = checksum_seed(segment.log_id, segment.epoch), segment.epoch
    stride = index_stride(len(image))
    found = Scan(segment.base_index, BLOCK_BYTES, FrameIndex(stride))
    found.synced_index = segment.synced_index
    while True:
        frame = frame_at(image, seed, epoch, found.end_offset)
        if frame is None or frame.first_index != found.end_index:
            return found
        if frame.synced_index > found.synced_index:
            found.synced_index = frame.synced_index
        if frame.kind == FOOTER:
            payload = image[frame.offset + HEADER_BYTES : frame.end_offset]
            found.footer = decode_footer(payload, frame.synced_index)
            found.footer_offset = frame.offset
            return found
        _count_in(found, frame)


def _count_in(found: Scan, frame: FrameHeader) -> None:
    if frame.kind == DATA:
        found.index.add(frame.first_index, frame.time_ns, frame.offset)
        found.min_time_ns = found.min_time_ns or frame.time_ns
        found.frames += 1
    elif frame.kind == LOST:
        found.lost.append((frame.first_index, frame.end_index))
    if frame.commits:
        found.commit_offset = frame.offset
    found.max_time_ns = frame.time_ns
    found.end_index = frame.end_index
    found.end_offset = frame.end_offset


def frames_after(
    image: Mapping, segment: SegmentHeader, offset: int, progress: Progress | None = None
) -> Iterator[FrameHeader]:
    """Every whole frame of this segment that begins at or after `offset`, wherever it lies."""
    seed, epoch = checksum_seed(segment.log_id, segment.epoch), segment.epoch
    # A recycled file is full of frames of its earlier lives: only ours have this epoch.
    mark, before = epoch_mark(epoch)
    place = offset
    while (marked := image.find(mark, place + before)) >= 0:
        place = marked - before
        frame = None if place % ALIGN_BYTES else frame_at(image, seed, epoch, place)
        if frame is None:
            place += 1
            continue
        if progress is not None:
            progress(place)
        yield frame
        place = frame.end_offset


def evidence_of_damage(image: Mapping, segment: SegmentHeader, found: Scan) -> FrameHeader | None:
    """A whole frame that proves that what should follow `found` was once on disk."""
    if found.footer is not None:
        return None
    for frame in frames_after(image, segment, found.end_offset):
        # The second half covers damaged frames that hold no index of their own.
        if frame.synced_index > found.end_index or frame.synced_index >= frame.first_index:
            return frame
    return None
