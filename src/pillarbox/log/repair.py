"""Checking a log without opening it, and saving what can be saved of a damaged one.

`verify` reads everything and changes nothing. `repair` rewrites each damaged segment from its
whole frames, puts a LOST frame where records are gone (so every other record keeps its
index), and keeps the damaged file in `aside/`. Both say exactly what is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pillarbox.log.commits import relink
from pillarbox.log.disk import Disk, Mapping, RealDisk, make_directory
from pillarbox.log.frame import DATA, FOOTER, HEADER_BYTES, LOST, FrameHeader
from pillarbox.log.layout import (
    BLOCK_BYTES,
    STAGED,
    SegmentHeader,
    base_of_name,
    decode_segment_header,
    guess_segment_header,
    segment_name,
)
from pillarbox.log.locking import take_lock
from pillarbox.log.recovery import ASIDE, segment_names
from pillarbox.log.scan import evidence_of_damage, frames_after, scan
from pillarbox.log.segment import SegmentWriter, new_epoch, new_spare_name

Progress = Callable[[int, int], None]


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

    @property
    def healthy(self) -> bool:
        return not self.damage


@dataclass(slots=True)
class _Found:
    """One segment: its header (if it can be told), and its whole frames in order."""

    name: str
    image: Mapping
    header: SegmentHeader | None
    frames: list[FrameHeader] = field(default_factory=list)
    damaged: bool = False

    @property
    def shift(self) -> int:
        return base_of_name(self.name) - self.header.base_index if self.header else 0


def verify(
    path: str | os.PathLike[str], *, disk: Disk | None = None, progress: Progress | None = None
) -> Report:
    """Read and check every frame of the log; nothing is changed."""
    return _examine(disk if disk is not None else RealDisk(), os.fspath(path), progress)[0]


def repair(
    path: str | os.PathLike[str], *, disk: Disk | None = None, progress: Progress | None = None
) -> Report:
    """Rewrite what is damaged without the lost records; nothing is deleted."""
    used, directory = disk if disk is not None else RealDisk(), os.fspath(path)
    handle = take_lock(used, directory)
    try:
        report, segments = _examine(used, directory, progress)
        for place, found in enumerate(segments):
            following = segments[place + 1] if place + 1 < len(segments) else None
            if found.damaged:
                _rewrite(used, directory, found, following, report)
    finally:
        used.close(handle)
    return report


def _examine(disk: Disk, directory: str, progress: Progress | None) -> tuple[Report, list[_Found]]:
    report = Report(directory)
    names = segment_names(disk, directory)
    segments: list[_Found] = []
    for place, name in enumerate(names):
        found = _load(disk, directory, name)
        after = names[place + 1] if place + 1 < len(names) else None
        _check(found, base_of_name(after) if after else None, report)
        segments.append(found)
        report.segments += 1
        report.bytes += len(found.image)
        if progress is not None:
            progress(place + 1, len(names))
    return report, segments


def _load(disk: Disk, directory: str, name: str) -> _Found:
    path = f"{directory}/{name}"
    handle = disk.open(path)
    try:
        image = disk.map(handle, disk.size(handle))
    finally:
        disk.close(handle)
    block = image[:BLOCK_BYTES]
    header = decode_segment_header(block, path)
    if header is not None:
        return _Found(name, image, header)
    adopted = name != segment_name(base_of_name(name))
    for guess in guess_segment_header(block):
        # The name is the better witness of what the checksum of a frame does not cover.
        candidate = guess._replace(
            base_index=0 if adopted else base_of_name(name), flags=STAGED if adopted else 0
        )
        if next(frames_after(image, candidate, BLOCK_BYTES), None) is not None:
            return _Found(name, image, candidate, damaged=True)
    return _Found(name, image, None, damaged=True)


def _check(found: _Found, next_base: int | None, report: Report) -> None:
    """Follow one segment; note each stretch of bytes whose records are gone."""
    base = base_of_name(found.name)
    if found.header is None:
        end = next_base if next_base is not None else base
        what = "the header can't be read, and nothing can be checked without it"
        report.damage.append(Damage(found.name, what, 0, len(found.image), base, end))
        return
    if found.damaged:
        what = "the header block fails its checksum; its records can be saved"
        report.damage.append(Damage(found.name, what, 0, BLOCK_BYTES, base, base))
    whole = scan(found.image, found.header)
    proof = evidence_of_damage(found.image, found.header, whole)
    found.frames = list(frames_after(found.image, found.header, BLOCK_BYTES))
    sealed = bool(found.frames) and found.frames[-1].kind == FOOTER
    if proof is None and not sealed and next_base is None:
        _tail(found, whole.end_offset, report)
    _note_gaps(found, next_base, report)
    data = [frame for frame in found.frames if frame.kind == DATA]
    report.frames += len(data)
    report.records += sum(frame.count for frame in data)
    report.lost_before.extend(whole.lost)


def _tail(found: _Found, end_offset: int, report: Report) -> None:
    """The last segment was not closed: what follows its whole frames was never confirmed."""
    found.frames = [frame for frame in found.frames if frame.offset < end_offset]
    if found.image[end_offset:].strip(b"\0"):
        report.torn_tail = (found.name, end_offset, len(found.image) - end_offset)


def _note_gaps(found: _Found, next_base: int | None, report: Report) -> None:
    index, place = base_of_name(found.name), BLOCK_BYTES
    for frame in found.frames:
        first = frame.first_index + found.shift
        if frame.offset != place or first != index:
            what = "frames fail their checksums or are missing"
            report.damage.append(Damage(found.name, what, place, frame.offset, index, first))
            found.damaged = True
        index, place = frame.end_index + found.shift, frame.end_offset
    if next_base is not None and index != next_base:
        what = "frames fail their checksums or are missing"
        damage = Damage(found.name, what, place, len(found.image), index, next_base)
        report.damage.append(damage)
        found.damaged = True


def _rewrite(
    disk: Disk, directory: str, found: _Found, following: _Found | None, report: Report
) -> None:
    """Write the segment anew from its whole frames, then put it in the damaged one's place."""
    spare = f"{directory}/{new_spare_name()}"
    handle = disk.open(spare, write=True, create=True)
    base = base_of_name(found.name)
    old = found.header
    log_id = old.log_id if old is not None else bytes(16)
    header = SegmentHeader(log_id, new_epoch(), base - found.shift, 0, 0, old.flags if old else 0)
    capacity = len(found.image) + BLOCK_BYTES + 64 * (len(found.frames) + 2)
    writer = SegmentWriter(disk, handle, header, capacity, capacity)
    try:
        disk.pwrite(handle, [header.encode()], 0)
        for frame in found.frames:
            _copy(writer, found, frame)
        end = base_of_name(following.name) - found.shift if following else writer.end_index
        _mark_lost(writer, end)
        writer.seal(writer.end_index)
        writer.sync()
    finally:
        writer.close()
    make_directory(disk, f"{directory}/{ASIDE}")
    kept = _free_name(disk, f"{directory}/{ASIDE}", found.name)
    disk.link(f"{directory}/{found.name}", f"{directory}/{ASIDE}/{kept}")
    disk.sync_directory(f"{directory}/{ASIDE}")
    disk.sync_directory(directory)
    disk.rename(spare, f"{directory}/{found.name}")
    disk.sync_directory(directory)
    report.kept_aside.append(f"{ASIDE}/{kept}")


def _copy(writer: SegmentWriter, found: _Found, frame: FrameHeader) -> None:
    _mark_lost(writer, frame.first_index)
    if frame.kind == FOOTER or frame.first_index < writer.end_index:
        return
    payload = found.image[frame.offset + HEADER_BYTES : frame.end_offset]
    if frame.commits:
        payload = relink(frame, payload, writer.commit_offset)
    writer.write_frame(
        frame.kind,
        payload,
        time_ns=frame.time_ns,
        synced=writer.end_index,
        count=frame.count,
        data_bytes=frame.data_bytes,
        flags=frame.flags,
    )


def _mark_lost(writer: SegmentWriter, end_index: int) -> None:
    if end_index > writer.end_index:
        count = end_index - writer.end_index
        synced = writer.end_index
        writer.write_frame(LOST, b"", time_ns=writer.max_time_ns, synced=synced, count=count)


def _free_name(disk: Disk, directory: str, name: str) -> str:
    taken = set(disk.names(directory))
    return next(new for new in _numbered(name) if new not in taken)


def _numbered(name: str) -> Iterator[str]:
    number = 1
    while True:
        yield f"{name}.damaged-{number}"
        number += 1
