"""Reads a segment frame by frame, and tells a torn tail from damage.

A scan follows frames until one is not valid. The rest is searched for evidence: a valid frame of
this segment whose `synced_index` covers that place proves that its bytes were once on disk, so
they are damaged. Without such a frame nothing there was ever confirmed, and it is a torn tail.
Only recovery, verify and repair scan; readers use `frame_reader.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pillarbox.log.disk import Mapping
from pillarbox.log.frame import ALIGN_BYTES, FOOTER, MARK_OFFSET, FrameHeader
from pillarbox.log.layout import BLOCK_BYTES, SegmentHeader, index_stride
from pillarbox.log.segments import Segment


def scan(image: Mapping, name: str, header: SegmentHeader) -> Segment:
    """The segment up to its footer or its first invalid frame."""
    codec = header.codec
    segment = Segment(name, header, index_stride(len(image)))
    while True:
        end = segment.end_offset
        frame = codec.frame_at(image, end, end)
        if frame is None or frame.first_index + segment.shift != segment.end_index:
            segment.size_bytes = end
            return segment
        segment.synced_index = max(segment.synced_index, frame.synced_index + segment.shift)
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
    """Every valid frame of this segment that starts at or after an offset."""
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
    """The first of these frames that proves that records at `end_index` were once on disk.

    Given are the frames that follow an invalid one, and the index where that should start.
    """
    for frame in frames:
        # The second condition covers damaged frames without records.
        if frame.synced_index > end_index or frame.synced_index >= frame.first_index:
            return frame
    return None
