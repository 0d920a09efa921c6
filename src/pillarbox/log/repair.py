"""Checking a log without opening it, and saving what can be saved of a damaged one.

`verify` reads everything and changes nothing. `repair` puts segments that stand under a wrong
name back, sets aside what does not belong, and rewrites each damaged segment from its whole
frames; a LOST frame stands where records are gone, so every other record keeps its index. The
files that it replaces are kept in `aside/`. Both say exactly what is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from pillarbox.log.commits import Commit
from pillarbox.log.disk import Disk, RealDisk
from pillarbox.log.errors import LogError
from pillarbox.log.frame import DATA, decode_records
from pillarbox.log.layout import BLOCK_BYTES, base_of_name, is_segment_name
from pillarbox.log.locking import take_lock
from pillarbox.log.placement import Placement, place
from pillarbox.log.reader import Frame
from pillarbox.log.rewrite import MOVED_SUFFIX, move_all, write_anew, write_stand_in
from pillarbox.log.salvage import Found, load
from pillarbox.log.scan import evidence_of_damage, scan
from pillarbox.log.standins import lost_commit, stand_ins

Progress = Callable[[int, int], None]
_BROKEN = "frames fail their checksums or are missing"


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of one file that should hold the records `first_index` up to `end_index`."""

    file: str
    what: str
    first_byte: int
    end_byte: int
    first_index: int
    end_index: int


@dataclass(slots=True)
class Report:
    """What `verify` found, and what `repair` did about it."""

    path: str
    segments: int = 0
    frames: int = 0
    records: int = 0
    bytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    torn_tail: tuple[str, int, int] | None = None
    lost_before: list[tuple[int, int]] = field(default_factory=list)
    kept_aside: list[str] = field(default_factory=list)
    #: The log's id, and the records that it holds: up to `end_index`, lost ones too.
    log_id: str = ""
    first_index: int = 0
    end_index: int = 0
    #: Why `repair` would refuse, if it would.
    unsure: str | None = None

    @property
    def healthy(self) -> bool:
        return not self.damage


@dataclass(slots=True)
class _Examined:
    """A log's segments in order, and how far each is to be extended by a repair."""

    report: Report
    placement: Placement
    ends: dict[str, int] = field(default_factory=dict)
    #: Records of which no segment is left: (first index, index after the last).
    missing: list[tuple[int, int]] = field(default_factory=list)
    #: By the name of the segment that it was in: a commit that is lost.
    commits: dict[str, Commit] = field(default_factory=dict)


def verify(
    path: str | os.PathLike[str],
    *,
    disk: Disk | None = None,
    progress: Progress | None = None,
    log_id: str = "",
    needs: tuple[int, int] | None = None,
) -> Report:
    """Read and check every frame of the log; nothing is changed.

    `log_id` says which log this has to be, and `needs` which records it has to hold, if the
    caller knows.
    """
    used = disk if disk is not None else RealDisk()
    return _examine(used, os.fspath(path), progress, log_id, needs).report


def repair(
    path: str | os.PathLike[str],
    *,
    disk: Disk | None = None,
    progress: Progress | None = None,
    log_id: str = "",
    needs: tuple[int, int] | None = None,
) -> Report:
    """Put in order and rewrite what is damaged, without the lost records; nothing is deleted."""
    used, directory = disk if disk is not None else RealDisk(), os.fspath(path)
    handle = take_lock(used, directory)
    try:
        found = _examine(used, directory, progress, log_id, needs)
        if found.report.unsure is not None:
            raise LogError(found.report.unsure)
        if found.report.damage:
            _mend(used, directory, found)
    finally:
        used.close(handle)
    return found.report


def salvage(
    path: str | os.PathLike[str], *, disk: Disk | None = None, log_id: str = ""
) -> Iterator[Frame]:
    """Every whole group of records, in order, whatever lies between them."""
    used, directory = disk if disk is not None else RealDisk(), os.fspath(path)
    for found in _placed(used, directory, log_id, None)[1].order:
        for frame in found.frames:
            if frame.kind == DATA:
                records = decode_records(found.payload(frame), frame, 0)
                yield Frame(frame.first_index + found.shift, frame.time_ns, records)


def _mend(disk: Disk, directory: str, examined: _Examined) -> None:
    report, order, commits = examined.report, examined.placement.order, examined.commits
    rejected = [found for found, _ in examined.placement.rejected]
    planned = [
        each
        for first, end in examined.missing
        for each in stand_ins(examined.placement, first, end, commits)
    ]
    report.kept_aside += move_all(disk, directory, order, rejected)
    for at, found in enumerate(order):
        if found.damaged:
            before = order[at - 1] if at else None
            end = examined.ends.get(found.right_name, found.end)
            commit = commits.get(found.right_name)
            report.kept_aside.append(write_anew(disk, directory, found, before, end, commit))
    for header, first, end in planned:
        time_ns = max((each.time_ns for each in order if each.base < first), default=0)
        write_stand_in(disk, directory, header, first, end, time_ns, commits)


def _examine(
    disk: Disk,
    directory: str,
    progress: Progress | None,
    log_id: str,
    needs: tuple[int, int] | None,
) -> _Examined:
    files, placement = _placed(disk, directory, log_id, progress)
    report = Report(directory, segments=len(files), bytes=sum(len(each.image) for each in files))
    report.log_id = placement.log_id.hex()
    examined = _Examined(report, placement)
    order = placement.order
    for found, following in zip_longest(order, order[1:]):
        _check(found, following, report)
        _check_end(found, following, examined)
        _check_commit(found, following, examined)
    if order:
        report.first_index, report.end_index = order[0].base, order[-1].end
    _check_needs(needs, examined)
    _report_missing(examined)
    if placement.unsure:
        report.unsure = (
            f"{directory} holds as many segments of one log as of another, and nothing tells which"
            " of them is right; take away those that do not belong there, then repair it"
        )
    return examined


def _placed(
    disk: Disk, directory: str, log_id: str, progress: Progress | None
) -> tuple[list[Found], Placement]:
    files = []
    names = [(file, file.removesuffix(MOVED_SUFFIX)) for file in disk.names(directory)]
    names = [(file, name) for file, name in names if is_segment_name(name)]
    for at, (file, name) in enumerate(names):
        files.append(load(disk, directory, file, name))
        if progress is not None:
            progress(at + 1, len(names))
    return files, place(files, bytes.fromhex(log_id))


def _check(found: Found, following: Found | None, report: Report) -> None:
    """Follow one segment; note each stretch of bytes whose records are gone."""
    base, name = found.base, found.name
    if name != found.right_name:
        what = f"it is {found.right_name} under a wrong name, and can be put back"
        report.damage.append(Damage(name, what, 0, 0, base, base))
    if found.guessed:
        what = "the header block fails its checksum; its records can be saved"
        report.damage.append(Damage(name, what, 0, BLOCK_BYTES, base, base))
    whole = scan(found.image, found.known)
    proof = evidence_of_damage(found.image, found.known, whole)
    if proof is None and not found.sealed and following is None:
        _tail(found, whole.end_offset, report)
    index, place = base, BLOCK_BYTES
    for frame in found.frames:
        first = frame.first_index + found.shift
        if frame.offset != place or first != index:
            report.damage.append(Damage(name, _BROKEN, place, frame.offset, index, first))
            found.damaged = True
        index, place = frame.end_index + found.shift, frame.end_offset
    data = [frame for frame in found.frames if frame.kind == DATA]
    report.frames += len(data)
    report.records += sum(frame.count for frame in data)
    report.lost_before.extend((a + found.shift, b + found.shift) for a, b in whole.lost)


def _tail(found: Found, end_offset: int, report: Report) -> None:
    """The last segment was not closed: what follows its whole frames was never confirmed."""
    found.frames = [frame for frame in found.frames if frame.offset < end_offset]
    if found.image[end_offset:].strip(b"\0"):
        report.torn_tail = (found.name, end_offset, len(found.image) - end_offset)


def _check_end(found: Found, following: Found | None, examined: _Examined) -> None:
    """Whether the segment reaches up to the next one, or at least to where it was sealed."""
    end = found.end
    if following is not None and end < following.base:
        if _continues(following, found):
            end = following.base
        else:
            examined.missing.append((end, following.base))
    short = following is not None and found.end < following.base
    if end != found.end or (not found.sealed and (found.staged or short)):
        place = found.frames[-1].end_offset if found.frames else BLOCK_BYTES
        damage = Damage(found.name, _BROKEN, place, len(found.image), found.end, end)
        examined.report.damage.append(damage)
        examined.ends[found.right_name], found.damaged = end, True


def _check_commit(found: Found, following: Found | None, examined: _Examined) -> None:
    """Whether one of the log's own segments has the commit of the adopted ones after it."""
    if following is None or not following.staged or found.staged or found.end != following.base:
        return
    if found.known.previous_epoch is None or any(
        following.right_name in commit.files for commit in found.adoptions()
    ):
        return
    what = f"the commit that names {following.right_name} is missing, and its metadata is lost"
    place = found.frames[-1].offset if found.frames else BLOCK_BYTES
    examined.report.damage.append(Damage(found.name, what, place, place, found.end, found.end))
    order = examined.placement.order
    examined.commits[found.right_name] = lost_commit(order[order.index(following) :])
    found.damaged = True


def _continues(following: Found, found: Found) -> bool:
    """Whether what is missing between the two can have been in the first of them."""
    if following.staged:
        return not found.sealed
    return following.known.previous_epoch in (None, found.known.epoch)


def _check_needs(needs: tuple[int, int] | None, examined: _Examined) -> None:
    """Whether the log begins and ends where whoever relies on it says."""
    if needs is None or needs[0] >= needs[1]:
        return
    order, report = examined.placement.order, examined.report
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
            what = "the newest records are missing: it is an older copy, or was cut"
            place = last.frames[-1].end_offset if last.frames else BLOCK_BYTES
            damage = Damage(last.name, what, place, len(last.image), report.end_index, needs[1])
            report.damage.append(damage)
            examined.ends[last.right_name], last.damaged = needs[1], True
        report.end_index = needs[1]


def _report_missing(examined: _Examined) -> None:
    """Say of each file that was rejected why, and which records are missing in its place."""
    report = examined.report
    missing = list(examined.missing)
    for found, what in examined.placement.rejected:
        base = base_of_name(found.name)
        gap = next((each for each in missing if each[0] <= base < each[1]), None)
        first, end = gap or (base, base)
        if gap is not None:
            missing.remove(gap)
        report.damage.append(Damage(found.name, what, 0, len(found.image), first, end))
    for first, end in missing:
        what = "the segment with these records is missing"
        report.damage.append(Damage(f"{first:020d}.seg", what, 0, 0, first, end))
