"""How a repair changes the files of a log: rename, set aside, rewrite, replace.

A missing segment is replaced by a placeholder, whose records are marked as lost. It has the epoch
by which the next segment, or a commit, refers to the missing one, so a repaired log passes the
same checks as any other. No file is deleted before it has another name, so a repair that was
killed can be repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile, zip_longest

import msgspec

from pillarbox.log.commit_frames import Commit, encode_commit, relink
from pillarbox.log.disk import Disk, make_directory, write_all
from pillarbox.log.frame import COMMIT, FOOTER, LOST, FrameHeader
from pillarbox.log.layout import BLOCK_BYTES, STAGED, SegmentHeader, base_of_name, segment_name
from pillarbox.log.recovery import ASIDE
from pillarbox.log.salvage import SalvagedSegment, SegmentOrder
from pillarbox.log.segment import SegmentWriter, new_epoch, new_spare_name

#: Suffix of files that are being renamed.
MOVED_SUFFIX = ".moved"


def set_aside(disk: Disk, directory: str, source: str, name: str) -> str:
    """Link the file `source` into the `aside/` of a log; returns its path there."""
    make_directory(disk, f"{directory}/{ASIDE}")
    taken = set(disk.names(f"{directory}/{ASIDE}"))
    kept = next(new for new in _numbered(name) if new not in taken)
    disk.link(source, f"{directory}/{ASIDE}/{kept}")
    disk.sync_directory(f"{directory}/{ASIDE}")
    return f"{ASIDE}/{kept}"


def move_all(
    disk: Disk,
    directory: str,
    order: Sequence[SalvagedSegment],
    rejected: Sequence[SalvagedSegment],
) -> list[str]:
    """Rename segments to their right names, and set the rejected ones aside."""
    kept = [set_aside(disk, directory, f"{directory}/{each.name}", each.name) for each in rejected]
    moving = [each for each in order if each.name != each.right_name]
    set_aside_names = {each.name for each in rejected}
    for each in moving:
        target = f"{each.right_name}{MOVED_SUFFIX}"
        if each.name != target:
            if target in set_aside_names:  # left by a killed repair
                disk.unlink(f"{directory}/{target}")
            disk.link(f"{directory}/{each.name}", f"{directory}/{target}")
    disk.sync_directory(directory)
    left = {each.name for each in (*moving, *rejected)} - {each.right_name for each in order}
    for each in moving:
        path = f"{directory}/{each.right_name}"
        disk.rename(path + MOVED_SUFFIX, path)
        each.name = each.right_name
    disk.sync_directory(directory)
    for name in left.intersection(disk.names(directory)):
        disk.unlink(f"{directory}/{name}")
    if left:
        disk.sync_directory(directory)
    return kept


def rewrite_segment(
    disk: Disk,
    directory: str,
    found: SalvagedSegment,
    before: SalvagedSegment | None,
    end_index: int,
    commit: Commit | None,
) -> str:
    """Rewrite a segment from its valid frames, with a LOST frame up to `end_index`.

    Adds `commit`, if one is lost. Returns where the damaged file is kept.
    """
    spare = f"{directory}/{new_spare_name()}"
    handle = disk.open(spare, write=True, create=True)
    # Keep the epoch, by which the next segment or a commit refers to this one.
    header = found.known._replace(synced_index=0)
    if found.guessed and before is not None and before.end == found.base:
        header = header._replace(previous_epoch=before.known.epoch)
    capacity = len(found.image) + BLOCK_BYTES + 64 * (len(found.frames) + 2)
    writer = SegmentWriter(disk, handle, header, capacity, capacity)
    try:
        write_all(disk, handle, [header.encode()], 0)
        for frame in found.frames:
            _copy(writer, found, frame)
        _mark_lost(writer, end_index - found.shift, writer.max_time_ns)
        _finish(writer, commit)
        writer.sync()
    finally:
        writer.close()
    kept = set_aside(disk, directory, f"{directory}/{found.name}", found.name)
    disk.sync_directory(directory)
    disk.rename(spare, f"{directory}/{found.name}")
    disk.sync_directory(directory)
    return kept


def write_placeholder(
    disk: Disk,
    directory: str,
    header: SegmentHeader,
    first_index: int,
    end_index: int,
    time_ns: int,
    commits: Mapping[str, Commit],
) -> None:
    """Write a segment with a LOST frame for all of its records."""
    name = segment_name(first_index, adopted=bool(header.flags & STAGED))
    spare = f"{directory}/{new_spare_name()}"
    handle = disk.open(spare, write=True, create=True)
    commit = commits.get(name)
    capacity = 4 * BLOCK_BYTES + (len(encode_commit(commit)) if commit is not None else 0)
    writer = SegmentWriter(disk, handle, header, capacity, capacity)
    try:
        write_all(disk, handle, [header.encode()], 0)
        _mark_lost(writer, header.base_index + end_index - first_index, time_ns)
        _finish(writer, commit)
        writer.sync()
    finally:
        writer.close()
    disk.rename(spare, f"{directory}/{name}")
    disk.sync_directory(directory)


def _finish(writer: SegmentWriter, commit: Commit | None) -> None:
    if commit is not None:
        commit = msgspec.structs.replace(commit, previous_offset=writer.commit_offset)
        payload, end = encode_commit(commit), writer.end_index
        writer.write_frame(COMMIT, payload, time_ns=writer.max_time_ns, synced=end)
    writer.seal(writer.end_index)


def _copy(writer: SegmentWriter, found: SalvagedSegment, frame: FrameHeader) -> None:
    _mark_lost(writer, frame.first_index, writer.max_time_ns)
    if frame.kind == FOOTER or frame.first_index < writer.end_index:
        return
    payload = found.payload(frame)
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


def _mark_lost(writer: SegmentWriter, end_index: int, time_ns: int) -> None:
    if end_index > writer.end_index:
        count = end_index - writer.end_index
        writer.write_frame(LOST, b"", time_ns=time_ns, synced=writer.end_index, count=count)


def _numbered(name: str) -> Iterator[str]:
    number = 1
    while True:
        yield f"{name}.damaged-{number}"
        number += 1


Placeholder = tuple[SegmentHeader, int, int]  # header, first index, end index


def placeholders(
    segments: SegmentOrder, first: int, end: int, commits: dict[str, Commit]
) -> Iterator[Placeholder]:
    """The placeholders for the records `first` up to `end`; adds the commits they need."""
    order = segments.order
    before = next((each for each in reversed(order) if each.end <= first and each.base < end), None)
    following = order[order.index(before) + 1 :] if before is not None else order
    after = following[0] if following else None
    wanted = after.known.previous_epoch if after is not None and not after.staged else None
    previous = before.known.epoch if before is not None else None
    commit = _commit_at(order, first)
    for name, epoch, file_end in _files_of(commit, first, end):
        known = wanted if wanted and file_end == end else epoch or new_epoch()
        header = SegmentHeader(secrets.token_bytes(16), known, 0, 0, 0, STAGED)
        yield header, base_of_name(name), file_end
        first, previous = file_end, known
    named = commit.files if commit is not None else ()
    if first == end and named and (after is None or not after.staged or after.right_name in named):
        return
    epoch = wanted or new_epoch()
    if before is not None and not before.staged and before.base == first:
        # An empty segment, whose commit is lost too, has its name.
        name = segment_name(first, adopted=True)
        commits[before.right_name] = lost_commit(following, (name, first, epoch), end)
        before.damaged = True
        yield SegmentHeader(secrets.token_bytes(16), epoch, 0, 0, 0, STAGED), first, end
        return
    if after is not None and after.staged:
        commits[segment_name(first)] = lost_commit(following)
    yield SegmentHeader(segments.log_id, epoch, first, 0, 0, previous_epoch=previous), first, end


def _commit_at(order: Sequence[SalvagedSegment], first: int) -> Commit | None:
    """The commit that names an adopted segment with this first index, if any."""
    name = segment_name(first, adopted=True)
    commits = (commit for each in order if not each.staged for commit in each.adoptions())
    return next((commit for commit in commits if name in commit.files), None)


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
    named = [(each.right_name, each.base, each.known.epoch) for each in run]
    if also is not None:
        named.insert(0, also)
    end = run[-1].end if run else end
    names, bases, epochs = map(list, zip(*named, strict=True))
    return Commit(bases[0], end, names, b"", 0, epochs=epochs, lost=True)
