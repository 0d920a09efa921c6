"""Verifies a log without opening it, and repairs a damaged one.

`verify` reads everything and changes nothing. `repair` renames misnamed segments, sets aside
files that do not belong, and rewrites damaged segments from their valid frames. A LOST frame
replaces lost records, so every other record keeps its index. Both report exactly what is lost.
Replaced files are kept in `aside/`, and no file is deleted before it has another name, so a repair
that was killed can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest

from pillarbox.log.commits import relink
from pillarbox.log.directory import (
    MOVED_SUFFIX,
    LogDirectory,
    base_of_name,
    new_spare_name,
    segment_name,
)
from pillarbox.log.disk import Disk, RealDisk, write_all
from pillarbox.log.errors import LogError
from pillarbox.log.frame import DATA, FOOTER, LOST, FrameHeader, decode_records
from pillarbox.log.frame_reader import Frame
from pillarbox.log.layout import BLOCK_BYTES, SegmentHeader, index_stride
from pillarbox.log.salvage import (
    Progress,
    SalvagedSegment,
    SegmentOrder,
    load_all,
    order_segments,
)
from pillarbox.log.segment_writer import SegmentWriter, new_epoch
from pillarbox.log.segments import Segment, evidence_of_damage

_BROKEN = "frames fail their checksums or are missing"


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged bytes of a file, where the records `first_index` up to `end_index` should be."""

    file: str
    what: str
    first_byte: int
    end_byte: int
    first_index: int
    end_index: int


@dataclass(slots=True)
class Report:
    """What `verify` found and `repair` did."""

    path: str
    segments: int = 0
    frames: int = 0
    records: int = 0
    bytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    torn_tail: tuple[str, int, int] | None = None
    lost_before: list[tuple[int, int]] = field(default_factory=list)
    kept_aside: list[str] = field(default_factory=list)
    #: The id of the log, and its range of indices, including lost records.
    log_id: str = ""
    first_index: int = 0
    end_index: int = 0
    #: Why `repair` would refuse; None if it would not.
    unsure: str | None = None

    @property
    def healthy(self) -> bool:
        return not self.damage


def verify(
    path: str | os.PathLike[str],
    *,
    disk: Disk | None = None,
    progress: Progress | None = None,
    log_id: str = "",
    needs: tuple[int, int] | None = None,
) -> Report:
    """Read and check every frame of the log, without changing anything.

    `log_id` is the expected id of the log, and `needs` the records that it must contain.
    """
    directory = LogDirectory(disk or RealDisk(), os.fspath(path))
    return _Examination(directory, log_id, needs, progress).report


def repair(
    path: str | os.PathLike[str],
    *,
    disk: Disk | None = None,
    progress: Progress | None = None,
    log_id: str = "",
    needs: tuple[int, int] | None = None,
) -> Report:
    """Repair the log; lost records are marked as such, and no file is deleted."""
    directory = LogDirectory(disk or RealDisk(), os.fspath(path))
    handle = directory.lock()
    try:
        found = _Examination(directory, log_id, needs, progress)
        if found.report.unsure is not None:
            raise LogError(found.report.unsure)
        if found.report.damage:
            found.repair()
    finally:
        directory.disk.close(handle)
    return found.report


def salvage(
    path: str | os.PathLike[str], *, disk: Disk | None = None, log_id: str = ""
) -> Iterator[Frame]:
    """Yield all frames that can still be read, in order."""
    directory = LogDirectory(disk or RealDisk(), os.fspath(path))
    for found in order_segments(load_all(directory, None), bytes.fromhex(log_id)).order:
        for frame in found.frames:
            if frame.kind == DATA:
                records = decode_records(found.payload(frame), frame, 0)
                yield Frame(frame.first_index, frame.time_ns, records)


class _Examination:
    """What is wrong with the segments of a log, and what a repair must do."""

    def __init__(
        self,
        directory: LogDirectory,
        log_id: str,
        needs: tuple[int, int] | None,
        progress: Progress | None,
    ) -> None:
        self._directory = directory
        files = load_all(directory, progress)
        self._segments = order_segments(files, bytes.fromhex(log_id))
        self._order = order = self._segments.order
        #: Missing segments: (first index, index after the last).
        self._missing: list[tuple[int, int]] = []
        self.report = report = Report(directory.path, len(files))
        report.bytes = sum(len(each.image) for each in files)
        report.log_id = self._segments.log_id.hex()
        for found, following in zip_longest(order, order[1:]):
            self._check_frames(found, following)
            self._check_end(found, following)
        if order:
            report.first_index, report.end_index = order[0].base, order[-1].end
        if needs is not None and needs[0] < needs[1]:
            self._check_needs(*needs)
        self._report_missing()
        if self._segments.unsure:
            report.unsure = (
                f"{directory.path} contains as many segments of one log as of another; remove"
                " those that do not belong there, then repair it"
            )

    def repair(self) -> None:
        """Change the files."""
        directory, order = self._directory, self._order
        rejected = [found for found, _ in self._segments.rejected]
        kept = self.report.kept_aside
        kept += _move_all(directory, order, rejected)
        for before, found in zip([None, *order], order, strict=False):
            if found.damaged:
                kept.append(_rewrite_segment(directory, found, before))
        for first, end in self._missing:
            _write_placeholder(directory, self._segments, first, end)

    def _add(
        self,
        found: SalvagedSegment,
        what: str,
        place: tuple[int, int] = (0, 0),
        lost: tuple[int, int] | None = None,
    ) -> None:
        """Report damage: between these bytes, of these records."""
        first, end = lost or (found.base, found.base)
        self.report.damage.append(Damage(found.name, what, *place, first, end))

    def _check_frames(self, found: SalvagedSegment, following: SalvagedSegment | None) -> None:
        """Check one segment, and report each range of bytes whose records are lost."""
        report = self.report
        if found.name != found.right_name:
            self._add(found, f"it is {found.right_name} under a wrong name, and can be renamed")
        if found.guessed:
            what = "the header block fails its checksum; the records can be saved"
            self._add(found, what, (0, BLOCK_BYTES))
        torn = following is None and not found.sealed  # if so, at most its tail is torn
        index, position = found.base, BLOCK_BYTES
        for at, frame in enumerate(found.frames):
            first = frame.first_index
            if frame.offset != position or first != index:
                if torn and evidence_of_damage(found.frames[at:], index) is None:
                    del found.frames[at:]  # they were never confirmed
                    break
                torn = False
                self._add(found, _BROKEN, (position, frame.offset), (index, first))
                found.damaged = True
            index, position = frame.end_index, frame.end_offset
        if torn and found.image[position:].strip(b"\0"):
            report.torn_tail = (found.name, position, len(found.image) - position)
        for frame in found.frames:
            if frame.kind == DATA:
                report.frames += 1
                report.records += frame.count
            elif frame.kind == LOST:
                report.lost_before.append((frame.first_index, frame.end_index))

    def _check_end(self, found: SalvagedSegment, following: SalvagedSegment | None) -> None:
        """Check that the segment reaches the next one and is sealed if it must be."""
        end = found.end
        short = following is not None and end < following.base
        if following is not None and short:
            epoch = following.header.previous_epoch
            if epoch is not None and epoch != found.header.epoch and end == found.base:
                # A placeholder would have the name of this empty segment, so make it that.
                found.header = found.header._replace(epoch=epoch)
            if epoch in (None, found.header.epoch):
                end = following.base
            else:
                self._missing.append((end, following.base))
        if end != found.end or (not found.sealed and short):
            self._lose(found, _BROKEN, end)

    def _lose(self, found: SalvagedSegment, what: str, end_index: int) -> None:
        """Report the last records of a segment, up to an index, as lost."""
        place = found.end_offset, len(found.image)
        self._add(found, what, place, (found.end, end_index))
        found.lost_to, found.damaged = end_index, True

    def _check_needs(self, first_index: int, end_index: int) -> None:
        """Check that the log contains the records that its store needs."""
        report = self.report
        if not self._order:
            self._missing.append((first_index, end_index))
            report.first_index, report.end_index = first_index, end_index
            return
        if first_index < report.first_index:
            self._missing.insert(0, (first_index, report.first_index))
            report.first_index = first_index
        if end_index > report.end_index:
            what = "the newest records are missing: it is an older copy, or truncated"
            self._lose(self._order[-1], what, end_index)
            report.end_index = end_index

    def _report_missing(self) -> None:
        """Report each rejected file with its reason, and the records missing in its position."""
        missing = list(self._missing)
        for found, what in self._segments.rejected:
            base = base_of_name(found.name)
            gap = next((each for each in missing if each[0] <= base < each[1]), None)
            if gap is not None:
                missing.remove(gap)
            self._add(found, what, (0, len(found.image)), gap or (base, base))
        for first, end in missing:
            what = "the segment with these records is missing"
            self.report.damage.append(Damage(segment_name(first), what, 0, 0, first, end))


def _move_all(
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


def _rewrite_segment(
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


def _write_placeholder(
    directory: LogDirectory, segments: SegmentOrder, first: int, end: int
) -> None:
    """Replace a missing segment by one with a LOST frame for the records `first` up to `end`.

    It has the epoch by which the next segment refers to the missing one, so a repaired log passes
    the same checks as any other.
    """
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
