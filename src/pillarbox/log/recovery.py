"""Recovery when a log is opened: finds its end and removes what was never confirmed.

The rule (docs/adr/0010-log-format.md): follow frames until one is not valid. If a valid frame or
segment header further on proves that this position was once on disk, confirmed records are damaged
and the log refuses to open; else the rest is a torn tail and is cut off. Nothing is changed
before that decision, and a crash during recovery does not change it.
Called once by the writer, with the lock held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pillarbox.log.catalog import Segment, load_sealed, read_footer, read_header
from pillarbox.log.commit_frames import read_commit
from pillarbox.log.disk import Disk, Mapping, make_directory, opened
from pillarbox.log.errors import LogCorruptError
from pillarbox.log.layout import (
    BLOCK_BYTES,
    PENDING_SUFFIX,
    STAGED,
    SegmentHeader,
    base_of_name,
    is_segment_name,
    trailer_offset,
)
from pillarbox.log.scan import Scan, evidence_of_damage, frames_after, scan
from pillarbox.log.segment import SegmentWriter, clear_from, new_spare_name
from pillarbox.log.segment_links import why_not_here, why_not_named

ASIDE = "aside"


@dataclass(slots=True)
class Recovery:
    """The result of recovery. `clean` means that the log was closed and nothing was changed."""

    clean: bool = True
    cut: list[tuple[str, int, int]] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    resealed: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    #: The frames of the last segment.
    tail: Scan | None = None


@dataclass(slots=True)
class _Image:
    """A mapped segment file."""

    path: str
    name: str
    header: SegmentHeader
    data: Mapping

    @property
    def shift(self) -> int:
        return base_of_name(self.name) - self.header.base_index


def load_image(disk: Disk, directory: str, name: str) -> _Image:
    """Map a segment, after checking that its header is valid and fits its name."""
    path, base_index = f"{directory}/{name}", base_of_name(name)
    with opened(disk, path) as handle:
        header = _header(disk, handle, path, name)
        wrong = why_not_named(header, name)
        if wrong is not None:
            raise LogCorruptError(path, wrong, 0, base_index)
        return _Image(path, name, header, disk.map(handle, disk.size(handle)))


def _header(disk: Disk, handle: int, path: str, name: str) -> SegmentHeader:
    header = read_header(disk, handle, path)
    if header is None:
        raise LogCorruptError(path, "its header block fails its checksum", 0, base_of_name(name))
    return header


def segment_names(disk: Disk, directory: str) -> list[str]:
    return sorted(filter(is_segment_name, disk.names(directory)))


def segment_of(image: _Image, found: Scan) -> Segment:
    """A scanned segment for the catalog."""
    segment = Segment(
        image.name,
        base_of_name(image.name),
        found.end_index + image.shift,
        image.header,
        found.index,
        found.end_offset,
        found.min_time_ns,
        found.max_time_ns,
        found.commit_offset,
    )
    if found.footer is not None:
        segment.seal(found.footer, len(image.data))
    return segment


def recover(
    disk: Disk,
    directory: str,
    *,
    check_all: bool = False,
    trust_footer: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Recovery:
    """Find the segments and the end of a log, and cut a torn tail. `LogCorruptError` on damage."""
    result = Recovery()
    names = segment_names(disk, directory)
    _drop_headless_last(disk, directory, names, result)
    position = 0
    while position < len(names):
        if progress is not None:
            progress(position, len(names))
        if result.segments and result.segments[-1].end_index != base_of_name(names[position]):
            raise _gap(directory, result.segments[-1], names[position])
        _check_link(disk, directory, names[position], result.segments)
        segment = None
        if position < len(names) - 1 and not check_all:
            segment = _sealed_before(disk, directory, names[position], names[position + 1 :])
        elif trust_footer and not check_all:
            segment = _closed_last(disk, directory, names[position], result)
        if segment is None:
            segment = _examine(disk, directory, names, position, result)
        elif segment.commit_offset:
            _roll_forward(disk, directory, segment, names, result)
        result.segments.append(segment)
        position += 1
    _drop_uncommitted(disk, directory)
    return result


def _check_link(disk: Disk, directory: str, name: str, before: list[Segment]) -> None:
    """Refuse a segment that belongs to another log, or elsewhere in this one."""
    path = f"{directory}/{name}"
    with opened(disk, path) as handle:
        header = _header(disk, handle, path, name)
    what = why_not_here(disk, directory, before, header, name)
    if what is not None:
        raise LogCorruptError(path, what, 0, base_of_name(name))


def _drop_headless_last(disk: Disk, directory: str, names: list[str], result: Recovery) -> None:
    """Remove a last file that is too short for a header, so it has no records."""
    if not names:
        return
    path = f"{directory}/{names[-1]}"
    with opened(disk, path) as handle:
        size = disk.size(handle)
    if size < BLOCK_BYTES:
        disk.rename(path, f"{directory}/{new_spare_name()}")
        disk.sync_directory(directory)
        result.cut.append((path, 0, size))
        result.clean = False
        names.pop()


def _gap(directory: str, before: Segment, name: str) -> LogCorruptError:
    what = f"the records {before.end_index} to {base_of_name(name)} (exclusive) are missing"
    return LogCorruptError(directory, what, 0, before.end_index)


def _sealed_before(disk: Disk, directory: str, name: str, later: list[str]) -> Segment | None:
    """A segment by its footer, if that fits the next segment and all frames are on disk."""
    segment = load_sealed(disk, directory, name)
    if segment is None or segment.end_index != base_of_name(later[0]):
        return None
    if segment.proven or any(
        load_image(disk, directory, each).header.synced_index >= segment.end_index for each in later
    ):
        return segment
    return None


def _closed_last(disk: Disk, directory: str, name: str, result: Recovery) -> Segment | None:
    """The last segment by its footer; None if it must be read."""
    segment = load_sealed(disk, directory, name)
    if segment is None or not segment.proven:
        return None
    with opened(disk, f"{directory}/{name}") as handle:
        end = trailer_offset(disk.pread(handle, 16, segment.size_bytes - 16))
        footer = read_footer(disk, handle, segment.header)
    if end is None or footer is None:
        return None
    found = Scan(footer.end_index, end, footer.index, footer, end)
    found.synced_index, found.commit_offset = footer.end_index, footer.commit_offset
    found.min_time_ns, found.max_time_ns = footer.min_time_ns, footer.max_time_ns
    found.frames = footer.frames
    result.tail = found
    return segment


def _examine(
    disk: Disk, directory: str, names: list[str], position: int, result: Recovery
) -> Segment:
    """Scan one segment and decide whether it is intact, torn or damaged."""
    image = load_image(disk, directory, names[position])
    found = scan(image.data, image.header)
    end_index = found.end_index + image.shift
    proof = evidence_of_damage(image.data, image.header, found)
    if proof is not None:
        what = f"the frame at byte {proof.offset} proves that records were confirmed here"
        raise LogCorruptError(image.path, what, found.end_offset, end_index)
    if found.footer is not None and (found.footer.end_index != found.end_index):
        what = "its footer disagrees with its frames"
        raise LogCorruptError(image.path, what, found.footer_offset, end_index)
    segment = segment_of(image, found)
    if segment.commit_offset:
        _roll_forward(disk, directory, segment, names, result)
    later = names[position + 1 :]
    if found.footer is not None:
        if later and base_of_name(later[0]) != end_index:
            raise _gap(directory, segment, later[0])
        result.tail = found
        return segment
    if image.header.flags & STAGED:
        raise LogCorruptError(
            image.path, "an adopted segment is truncated", found.end_offset, end_index
        )
    result.clean = False
    if later and base_of_name(later[0]) == end_index:
        return _reseal(disk, image, found, result)
    _refuse_if_confirmed(disk, directory, later, image, end_index)
    _set_aside(disk, directory, later, result)
    del names[position + 1 :]
    _cut(disk, image, found, result)
    return segment


def _refuse_if_confirmed(
    disk: Disk, directory: str, later: list[str], image: _Image, end_index: int
) -> None:
    """Search the segments after a torn one for proof that it was once intact on disk."""
    for name in later:
        following = load_image(disk, directory, name)
        claims = [following.header.synced_index]
        frames = frames_after(following.data, following.header, 0)
        claims.extend(frame.synced_index for frame in frames)
        if max(claims) > end_index or following.header.flags & STAGED:
            what = f"{name} proves that the records from here on were confirmed"
            raise LogCorruptError(image.path, what, len(image.data), end_index)


def _set_aside(disk: Disk, directory: str, later: list[str], result: Recovery) -> None:
    """Move away the segments after a torn one: they were never confirmed on disk."""
    for name in reversed(later):
        image = load_image(disk, directory, name)
        if next(frames_after(image.data, image.header, 0), None) is None:
            disk.rename(f"{directory}/{name}", f"{directory}/{new_spare_name()}")
        else:
            make_directory(disk, f"{directory}/{ASIDE}")
            disk.rename(f"{directory}/{name}", f"{directory}/{ASIDE}/{name}")
            disk.sync_directory(f"{directory}/{ASIDE}")
            result.aside.append(name)
        disk.sync_directory(directory)


def _cut(disk: Disk, image: _Image, found: Scan, result: Recovery) -> None:
    """Erase what follows the last valid frame."""
    result.tail = found
    rest = image.data[found.end_offset :]
    if rest.strip(b"\0"):
        result.cut.append((image.path, found.end_offset, len(rest)))
    if rest:
        with opened(disk, image.path, write=True) as handle:
            clear_from(disk, handle, found.end_offset, len(found.index.offsets))


def _reseal(disk: Disk, image: _Image, found: Scan, result: Recovery) -> Segment:
    """Write the missing footer of an intact segment."""
    segment = segment_of(image, found)
    result.resealed.append(segment.name)
    handle = disk.open(image.path, write=True)
    writer = SegmentWriter(disk, handle, image.header, len(image.data), len(image.data))
    try:
        writer.resume(found)
        footer = writer.seal(found.end_index)
        writer.sync()
    finally:
        writer.close()
    segment.seal(footer, writer.position)
    return segment


def _roll_forward(
    disk: Disk, directory: str, segment: Segment, names: list[str], result: Recovery
) -> None:
    """Finish an adoption whose commit frame is on disk: rename the pending files."""
    commit = read_commit(disk, directory, segment, segment.commit_offset)
    present = set(disk.names(directory))
    waiting = [file for file in commit.files if file + PENDING_SUFFIX in present]
    for name in waiting:
        disk.rename(f"{directory}/{name}{PENDING_SUFFIX}", f"{directory}/{name}")
    if waiting:
        disk.sync_directory(directory)
        result.clean = False
        names[:] = segment_names(disk, directory)


def _drop_uncommitted(disk: Disk, directory: str) -> None:
    """Delete the links of adoptions without a commit; the staged files stay."""
    leftover = [name for name in disk.names(directory) if name.endswith(PENDING_SUFFIX)]
    for name in leftover:
        disk.unlink(f"{directory}/{name}")
    if leftover:
        disk.sync_directory(directory)
