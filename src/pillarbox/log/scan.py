"""Reads a segment frame by frame, and tells a torn tail from damage.

A scan follows frames until one is not valid. The rest is searched for evidence: a valid frame of
this segment whose `synced_index` covers that place proves that its bytes were once on disk, so
they are damaged. Without such a frame nothing there was ever confirmed, and it is a torn tail.
Only recovery, verify and repair scan; readers use `frame_reader.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
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


@dataclass(slots=True)
class Scan:
    """What a segment contains up to the first invalid frame."""

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
    """The valid frame at `offset`, or None."""
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
    """Follow the frames up to the footer or the first invalid one."""
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


def frames_after(image: Mapping, segment: SegmentHeader, offset: int) -> Iterator[FrameHeader]:
    """Every valid frame of this segment that starts at or after `offset`."""
    seed, epoch = checksum_seed(segment.log_id, segment.epoch), segment.epoch
    # A recycled file contains frames of older epochs.
    mark, before = epoch_mark(epoch)
    position = offset
    while (marked := image.find(mark, position + before)) >= 0:
        position = marked - before
        frame = None if position % ALIGN_BYTES else frame_at(image, seed, epoch, position)
        if frame is None:
            position += 1
            continue
        yield frame
        position = frame.end_offset


def evidence_of_damage(image: Mapping, segment: SegmentHeader, found: Scan) -> FrameHeader | None:
    """A valid frame that proves that what should follow `found` was once on disk."""
    if found.footer is not None:
        return None
    for frame in frames_after(image, segment, found.end_offset):
        # The second condition covers damaged frames without records.
        if frame.synced_index > found.end_index or frame.synced_index >= frame.first_index:
            return frame
    return None
