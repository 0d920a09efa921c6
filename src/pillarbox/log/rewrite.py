"""How a repair changes the files of a log: rename, set aside, rewrite, replace.

A missing segment is replaced by a placeholder, whose records are marked as lost. It has the epoch
by which the next segment refers to the missing one, so a repaired log passes the same checks as
any other. No file is deleted before it has another name, so a repair that was
killed can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pillarbox.log.commits import relink
from pillarbox.log.directory import MOVED_SUFFIX, LogDirectory, new_spare_name, segment_name
from pillarbox.log.disk import write_all
from pillarbox.log.frame import FOOTER, LOST, FrameHeader
from pillarbox.log.layout import BLOCK_BYTES, SegmentHeader, index_stride
from pillarbox.log.salvage import SalvagedSegment, SegmentOrder
from pillarbox.log.segment_writer import SegmentWriter, new_epoch
from pillarbox.log.segments import Segment


def move_all(
    directory: LogDirectory,
    order: Sequence[SalvagedSegment],
    rejected: Sequence[SalvagedSegment],
) -> list[str]:
    """Rename segments to their right names, and set the rejected ones aside."""
    kept = [directory.set_aside(directory.path_of(each.name), each.name) for each in rejected]
    moving = [each for each in order if each.name != each.right_name]
    set_aside_names = {each.name for each in rejected}
    for each in moving:
        target = f"{each.right_name}{MOVED_SUFFIX}"
        if each.name != target:
            if target in set_aside_names:  # left by a killed repair
                directory.unlink(target)
            directory.disk.link(directory.path_of(each.name), directory.path_of(target))
    directory.sync()
    left = {each.name for each in (*moving, *rejected)} - {each.right_name for each in order}
    for each in moving:
        directory.rename(each.right_name + MOVED_SUFFIX, each.right_name)
        each.name = each.right_name
    directory.sync()
    for name in left.intersection(directory.names()):
        directory.unlink(name)
    if left:
        directory.sync()
    return kept


def rewrite_segment(
    directory: LogDirectory, found: SalvagedSegment, before: SalvagedSegment | None
) -> str:
    """Rewrite a damaged segment from its valid frames; returns where the old file is kept."""
    # Keep the epoch, by which the next segment refers to this one.
    header = found.header._replace(synced_index=0)
    if found.guessed and before is not None and before.end == found.base:
        header = header._replace(previous_epoch=before.header.epoch)
    capacity = len(found.image) + BLOCK_BYTES + 64 * (len(found.frames) + 2)
    with _new_segment(directory, header, capacity) as (spare, writer):
        for frame in found.frames:
            _copy(writer, found, frame)
        _mark_lost(writer, max(found.end, found.lost_to), writer.segment.max_time_ns)
    kept = directory.set_aside(directory.path_of(found.name), found.name)
    directory.sync()
    directory.rename(spare, found.name)
    directory.sync()
    return kept


def write_placeholder(
    directory: LogDirectory, segments: SegmentOrder, first: int, end: int
) -> None:
    """Write a segment with a LOST frame for the records `first` up to `end`."""
    earlier = [each for each in segments.order if each.base < first]
    after = next((each for each in segments.order if each.base >= end), None)
    header = SegmentHeader(
        segments.log_id,
        (after.header.previous_epoch if after is not None else None) or new_epoch(),
        first,
        0,
        0,
        previous_epoch=earlier[-1].header.epoch if earlier else None,
    )
    with _new_segment(directory, header, 4 * BLOCK_BYTES) as (spare, writer):
        _mark_lost(writer, end, max((each.time_ns for each in earlier), default=0))
    directory.rename(spare, segment_name(first))
    directory.sync()


@contextmanager
def _new_segment(
    directory: LogDirectory, header: SegmentHeader, capacity: int
) -> Iterator[tuple[str, SegmentWriter]]:
    """A new file to write frames to; then the footer and a sync are added."""
    spare = new_spare_name()
    handle = directory.open(spare, write=True, create=True)
    segment = Segment(segment_name(header.base_index), header, index_stride(capacity))
    writer = SegmentWriter(directory.disk, handle, segment, capacity, capacity)
    try:
        write_all(directory.disk, handle, [header.encode()], 0)
        yield spare, writer
        writer.seal(segment.end_index)
        writer.sync()
    finally:
        writer.close()


def _write(writer: SegmentWriter, kind: int, payload: bytes, time_ns: int, *details: int) -> None:
    frame = writer.write_frame(kind, payload, time_ns, writer.segment.end_index, *details)
    if frame.commits:
        writer.segment.commit_offset = frame.offset


def _copy(writer: SegmentWriter, found: SalvagedSegment, frame: FrameHeader) -> None:
    segment = writer.segment
    _mark_lost(writer, frame.first_index, segment.max_time_ns)
    if frame.kind == FOOTER or frame.first_index < segment.end_index:
        return
    payload = found.payload(frame)
    if frame.commits:
        payload = relink(frame, payload, segment.commit_offset)
    _write(writer, frame.kind, payload, frame.time_ns, frame.count, frame.data_bytes, frame.flags)


def _mark_lost(writer: SegmentWriter, end_index: int, time_ns: int) -> None:
    if end_index > writer.segment.end_index:
        _write(writer, LOST, b"", time_ns, end_index - writer.segment.end_index)
