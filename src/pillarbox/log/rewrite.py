"""How a repair changes the files of a log: rename, set aside, rewrite, replace.

A missing segment is replaced by a placeholder, whose records are marked as lost. It has the epoch
by which the next segment, or a commit, refers to the missing one, so a repaired log passes the
same checks as any other. No file is deleted before it has another name, so a repair that was
killed can be repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile, zip_longest
from typing import NamedTuple

import msgspec

from pillarbox.log.commits import Commit, encode_commit, relink
from pillarbox.log.directory import (
    MOVED_SUFFIX,
    LogDirectory,
    base_of_name,
    new_spare_name,
    segment_name,
)
from pillarbox.log.disk import write_all
from pillarbox.log.frame import COMMIT, FOOTER, LOST, FrameHeader
from pillarbox.log.layout import BLOCK_BYTES, STAGED, SegmentHeader, index_stride
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
    # Keep the epoch, by which the next segment or a commit refers to this one.
    header = found.header._replace(synced_index=0)
    if found.guessed and before is not None and before.end == found.base:
        header = header._replace(previous_epoch=before.header.epoch)
    capacity = len(found.image) + BLOCK_BYTES + 64 * (len(found.frames) + 2)
    with _new_segment(directory, header, capacity, found.lost_commit) as (spare, writer):
        for frame in found.frames:
            _copy(writer, found, frame)
        _mark_lost(writer, found.full_end - found.shift, writer.segment.max_time_ns)
    kept = directory.set_aside(directory.path_of(found.name), found.name)
    directory.sync()
    directory.rename(spare, found.name)
    directory.sync()
    return kept


class Placeholder(NamedTuple):
    """A segment whose records are all lost."""

    header: SegmentHeader
    first_index: int
    end_index: int
    commit: Commit | None = None


def write_placeholder(directory: LogDirectory, new: Placeholder, time_ns: int) -> None:
    """Write a segment with a LOST frame for all of its records."""
    capacity = 4 * BLOCK_BYTES + (len(encode_commit(new.commit)) if new.commit is not None else 0)
    with _new_segment(directory, new.header, capacity, new.commit) as (spare, writer):
        _mark_lost(writer, new.header.base_index + new.end_index - new.first_index, time_ns)
    directory.rename(spare, segment_name(new.first_index, adopted=new.header.staged))
    directory.sync()


@contextmanager
def _new_segment(
    directory: LogDirectory, header: SegmentHeader, capacity: int, commit: Commit | None
) -> Iterator[tuple[str, SegmentWriter]]:
    """A new file to write frames to; then the commit, the footer and a sync are added."""
    spare = new_spare_name()
    handle = directory.open(spare, write=True, create=True)
    segment = Segment(segment_name(header.base_index), header, index_stride(capacity))
    writer = SegmentWriter(directory.disk, handle, segment, capacity, capacity)
    try:
        write_all(directory.disk, handle, [header.encode()], 0)
        yield spare, writer
        if commit is not None:
            commit = msgspec.structs.replace(commit, previous_offset=segment.commit_offset)
            _write(writer, COMMIT, encode_commit(commit), segment.max_time_ns)
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


def placeholders(segments: SegmentOrder, first: int, end: int) -> Iterator[Placeholder]:
    """The placeholders for the records `first` up to `end`."""
    order = segments.order
    before = next((each for each in reversed(order) if each.end <= first and each.base < end), None)
    following = order[order.index(before) + 1 :] if before is not None else order
    after = following[0] if following else None
    wanted = after.header.previous_epoch if after is not None and not after.staged else None
    previous = before.header.epoch if before is not None else None
    commit = _commit_at(segments, first)
    for name, epoch, file_end in _files_of(commit, first, end):
        known = wanted if wanted and file_end == end else epoch or new_epoch()
        yield Placeholder(_adopted_header(known), base_of_name(name), file_end)
        first, previous = file_end, known
    named = commit.files if commit is not None else ()
    if first == end and named and (after is None or not after.staged or after.right_name in named):
        return
    epoch = wanted or new_epoch()
    if before is not None and not before.staged and before.base == first:
        # An empty segment, whose commit is lost too, has its name.
        name = segment_name(first, adopted=True)
        before.lost_commit = lost_commit(following, (name, first, epoch), end)
        before.damaged = True
        yield Placeholder(_adopted_header(epoch), first, end)
        return
    header = SegmentHeader(segments.log_id, epoch, first, 0, 0, previous_epoch=previous)
    adopts = after is not None and after.staged
    yield Placeholder(header, first, end, lost_commit(following) if adopts else None)


def _adopted_header(epoch: int) -> SegmentHeader:
    return SegmentHeader(secrets.token_bytes(16), epoch, 0, 0, 0, STAGED)


def _commit_at(segments: SegmentOrder, first: int) -> Commit | None:
    """The commit that names an adopted segment with this first index, if any."""
    name = segment_name(first, adopted=True)
    return next((commit for commit in segments.adoptions() if name in commit.files), None)


def _files_of(commit: Commit | None, first: int, end: int) -> Iterator[tuple[str, int | None, int]]:
    """The adopted segments of a commit between two indices, with epochs and ends."""
    if commit is not None:
        ends = [*map(base_of_name, commit.files[1:]), commit.end_index]
        for name, epoch, file_end in zip_longest(commit.files, commit.epochs, ends):
            if first <= base_of_name(name) and file_end <= end:
                yield name, epoch, file_end


def lost_commit(
    following: Sequence[SalvagedSegment], also: tuple[str, int, int] | None = None, end: int = 0
) -> Commit:
    """A replacement for the lost commit of the adopted segments that follow."""
    run = list(takewhile(lambda each: each.staged, following))
    named = [(each.right_name, each.base, each.header.epoch) for each in run]
    if also is not None:
        named.insert(0, also)
    end = run[-1].end if run else end
    names, bases, epochs = map(list, zip(*named, strict=True))
    return Commit(bases[0], end, names, b"", 0, epochs=epochs, lost=True)
