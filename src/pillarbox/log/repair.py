"""Verifies a log without opening it, and repairs a damaged one.

`verify` reads everything and changes nothing. `repair` renames misnamed segments, sets aside
files that do not belong, and rewrites damaged segments from their valid frames. A LOST frame
replaces lost records, so every other record keeps its index. Replaced files are kept in
`aside/`. Both report exactly what is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from pillarbox.log.commits import Commit
from pillarbox.log.directory import (
    MOVED_SUFFIX,
    LogDirectory,
    base_of_name,
    is_segment_name,
    segment_name,
)
from pillarbox.log.disk import Disk, RealDisk
from pillarbox.log.errors import LogError
from pillarbox.log.frame import DATA, LOST, decode_records
from pillarbox.log.frame_reader import Frame
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.rewrite import (
    lost_commit,
    move_all,
    placeholders,
    rewrite_segment,
    write_placeholder,
)
from pillarbox.log.salvage import SalvagedSegment, SegmentOrder, load, order_segments
from pillarbox.log.scan import evidence_of_damage

Progress = Callable[[int, int], None]
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


@dataclass(slots=True)
class _Examined:
    """The segments of a log, and what a repair must do."""

    report: Report
    segments: SegmentOrder
    ends: dict[str, int] = field(default_factory=dict)
    #: Missing segments: (first index, index after the last).
    missing: list[tuple[int, int]] = field(default_factory=list)
    #: Lost commits, by the name of their segment.
    commits: dict[str, Commit] = field(default_factory=dict)


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
    return _examine(directory, progress, log_id, needs).report


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
        found = _examine(directory, progress, log_id, needs)
        if found.report.unsure is not None:
            raise LogError(found.report.unsure)
        if found.report.damage:
            _repair_files(directory, found)
    finally:
        directory.disk.close(handle)
    return found.report


def salvage(
    path: str | os.PathLike[str], *, disk: Disk | None = None, log_id: str = ""
) -> Iterator[Frame]:
    """All frames that can still be read, in order."""
    directory = LogDirectory(disk or RealDisk(), os.fspath(path))
    for found in _ordered(directory, log_id, None)[1].order:
        for frame in found.frames:
            if frame.kind == DATA:
                records = decode_records(found.payload(frame), frame, 0)
                yield Frame(frame.first_index + found.shift, frame.time_ns, records)


def _repair_files(directory: LogDirectory, examined: _Examined) -> None:
    report, order, commits = examined.report, examined.segments.order, examined.commits
    rejected = [found for found, _ in examined.segments.rejected]
    planned = [
        each
        for first, end in examined.missing
        for each in placeholders(examined.segments, first, end, commits)
    ]
    report.kept_aside += move_all(directory, order, rejected)
    for at, found in enumerate(order):
        if found.damaged:
            before = order[at - 1] if at else None
            end = examined.ends.get(found.right_name, found.end)
            commit = commits.get(found.right_name)
            report.kept_aside.append(rewrite_segment(directory, found, before, end, commit))
    for header, first, end in planned:
        time_ns = max((each.time_ns for each in order if each.base < first), default=0)
        commit = commits.get(segment_name(first, adopted=header.staged))
        write_placeholder(directory, header, first, end, time_ns, commit)


def _examine(
    directory: LogDirectory,
    progress: Progress | None,
    log_id: str,
    needs: tuple[int, int] | None,
) -> _Examined:
    files, segments = _ordered(directory, log_id, progress)
    report = Report(
        directory.path, segments=len(files), bytes=sum(len(each.image) for each in files)
    )
    report.log_id = segments.log_id.hex()
    examined = _Examined(report, segments)
    order = segments.order
    for found, following in zip_longest(order, order[1:]):
        _check(found, following, report)
        _check_end(found, following, examined)
    _check_commits(examined)
    if order:
        report.first_index, report.end_index = order[0].base, order[-1].end
    _check_needs(needs, examined)
    _report_missing(examined)
    if segments.unsure:
        report.unsure = (
            f"{directory.path} contains as many segments of one log as of another; remove those"
            " that do not belong there, then repair it"
        )
    return examined


def _ordered(
    directory: LogDirectory, log_id: str, progress: Progress | None
) -> tuple[list[SalvagedSegment], SegmentOrder]:
    files = []
    names = [(file, file.removesuffix(MOVED_SUFFIX)) for file in directory.names()]
    names = [(file, name) for file, name in names if is_segment_name(name)]
    for at, (file, name) in enumerate(names):
        files.append(load(directory, file, name))
        if progress is not None:
            progress(at + 1, len(names))
    return files, order_segments(files, bytes.fromhex(log_id))


def _check(found: SalvagedSegment, following: SalvagedSegment | None, report: Report) -> None:
    """Check one segment, and report each range of bytes whose records are lost."""
    base, name = found.base, found.name
    if name != found.right_name:
        what = f"it is {found.right_name} under a wrong name, and can be renamed"
        report.damage.append(Damage(name, what, 0, 0, base, base))
    if found.guessed:
        what = "the header block fails its checksum; the records can be saved"
        report.damage.append(Damage(name, what, 0, BLOCK_BYTES, base, base))
    torn = following is None and not found.sealed  # if so, at most its tail is torn
    index, position = base, BLOCK_BYTES
    for at, frame in enumerate(found.frames):
        first = frame.first_index + found.shift
        if frame.offset != position or first != index:
            if torn and evidence_of_damage(found.frames[at:], index - found.shift) is None:
                del found.frames[at:]  # they were never confirmed
                break
            torn = False
            report.damage.append(Damage(name, _BROKEN, position, frame.offset, index, first))
            found.damaged = True
        index, position = frame.end_index + found.shift, frame.end_offset
    if torn and found.image[position:].strip(b"\0"):
        report.torn_tail = (name, position, len(found.image) - position)
    data = [frame for frame in found.frames if frame.kind == DATA]
    report.frames += len(data)
    report.records += sum(frame.count for frame in data)
    lost = [frame for frame in found.frames if frame.kind == LOST]
    report.lost_before.extend(
        (x.first_index + found.shift, x.end_index + found.shift) for x in lost
    )


def _check_end(
    found: SalvagedSegment, following: SalvagedSegment | None, examined: _Examined
) -> None:
    """Check that the segment reaches the next one and is sealed if it must be."""
    end = found.end
    if following is not None and end < following.base:
        if _continues(following, found, examined.segments.order):
            end = following.base
        else:
            examined.missing.append((end, following.base))
    short = following is not None and found.end < following.base
    if end != found.end or (not found.sealed and (found.staged or short)):
        position = found.frames[-1].end_offset if found.frames else BLOCK_BYTES
        damage = Damage(found.name, _BROKEN, position, len(found.image), found.end, end)
        examined.report.damage.append(damage)
        examined.ends[found.right_name], found.damaged = end, True


def _check_commits(examined: _Examined) -> None:
    """Check that the last commit before each adopted segment names it."""
    order = examined.segments.order
    named: set[str] | None = None  # by the commit of the last own segment
    for at, found in enumerate(order):
        if not found.staged:
            named = {file for commit in found.adoptions() for file in commit.files}
            if not named and found.known.previous_epoch is None and not found.guessed:
                named = None  # repairs of format 1 left adopted segments without a commit
        elif named is not None and found.right_name not in named:
            commit = lost_commit(order[at:])
            named = set(commit.files)
            _restore_commit(order[at - 1], found, commit, examined)


def _restore_commit(
    before: SalvagedSegment, found: SalvagedSegment, commit: Commit, examined: _Examined
) -> None:
    """Plan a commit before this adopted segment."""
    if examined.ends.get(before.right_name, before.end) != found.base:
        return  # a placeholder between the two has the commit
    what = f"the commit that names {found.right_name} is missing; its metadata is lost"
    examined.report.damage.append(Damage(before.name, what, 0, 0, before.end, before.end))
    if before.staged:
        examined.missing.append((found.base, found.base))
    else:
        examined.commits[before.right_name], before.damaged = commit, True


def _continues(
    following: SalvagedSegment, found: SalvagedSegment, order: Sequence[SalvagedSegment]
) -> bool:
    """Whether the records missing between the two may have been in the first."""
    if not following.staged:
        return following.known.previous_epoch in (None, found.known.epoch)
    commits = [commit.files for each in order if not each.staged for commit in each.adoptions()]
    together = any({found.right_name, following.right_name} <= set(files) for files in commits)
    return not found.sealed and (together or not found.staged)


def _check_needs(needs: tuple[int, int] | None, examined: _Examined) -> None:
    """Check that the log contains the records that its store needs."""
    if needs is None or needs[0] >= needs[1]:
        return
    order, report = examined.segments.order, examined.report
    if not order:
        examined.missing.append(needs)
        report.first_index, report.end_index = needs
        return
    if needs[0] < report.first_index:
        examined.missing.insert(0, (needs[0], report.first_index))
        report.first_index = needs[0]
    if needs[1] > report.end_index:
        last = order[-1]
        if last.staged:
            examined.missing.append((report.end_index, needs[1]))
        else:
            what = "the newest records are missing: it is an older copy, or truncated"
            position = last.frames[-1].end_offset if last.frames else BLOCK_BYTES
            damage = Damage(last.name, what, position, len(last.image), report.end_index, needs[1])
            report.damage.append(damage)
            examined.ends[last.right_name], last.damaged = needs[1], True
        report.end_index = needs[1]


def _report_missing(examined: _Examined) -> None:
    """Report each rejected file with its reason, and the records missing in its position."""
    report = examined.report
    missing = list(examined.missing)
    for found, what in examined.segments.rejected:
        base = base_of_name(found.name)
        gap = next((each for each in missing if each[0] <= base < each[1]), None)
        first, end = gap or (base, base)
        if gap is not None:
            missing.remove(gap)
        report.damage.append(Damage(found.name, what, 0, len(found.image), first, end))
    for first, end in (each for each in missing if each[0] < each[1]):
        what = "the segment with these records is missing"
        report.damage.append(Damage(f"{first:020d}.seg", what, 0, 0, first, end))
