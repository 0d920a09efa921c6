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
from typing import Literal

from pillarbox.log.directory import LogDirectory, base_of_name, new_spare_name
from pillarbox.log.disk import Mapping
from pillarbox.log.errors import LogCorruptError
from pillarbox.log.layout import BLOCK_BYTES, SegmentHeader
from pillarbox.log.segment_writer import SegmentWriter, clear_from
from pillarbox.log.segments import (
    Segment,
    check_link,
    evidence_of_damage,
    load_segment,
    scan,
    valid_frames,
    why_not_named,
)

#: Which segments to read: all, only the last, or not even that if it was closed cleanly.
Check = Literal["footer", "tail", "all"]


@dataclass(slots=True)
class Recovery:
    """The result of recovery. `clean` means that the log was closed and nothing was changed."""

    clean: bool = True
    cut: list[tuple[str, int, int]] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    resealed: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)


def recover(
    directory: LogDirectory,
    check: Check = "tail",
    progress: Callable[[int, int], None] | None = None,
) -> Recovery:
    """Find the segments and the end of a log, and cut a torn tail. `LogCorruptError` on damage."""
    recoverer = _Recoverer(directory)
    recoverer.drop_headless_last()
    names, segments = recoverer.names, recoverer.result.segments
    while len(segments) < len(names):  # which may change meanwhile
        if progress is not None:
            progress(len(segments), len(names))
        recoverer.recover_next(check)
    return recoverer.result


class _Recoverer:
    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self.result = Recovery()
        self.names = directory.segment_names()

    def drop_headless_last(self) -> None:
        """Remove a last file that is too short for a header, so it has no records."""
        if not self.names:
            return
        with self._directory.opened(self.names[-1]) as handle:
            size = self._directory.disk.size(handle)
        if size < BLOCK_BYTES:
            name = self.names.pop()
            self._directory.rename(name, new_spare_name())
            self._directory.sync()
            self.result.cut.append((self._directory.path_of(name), 0, size))
            self.result.clean = False

    def recover_next(self, check: Check) -> None:
        """Check the next segment."""
        before = self.result.segments
        name, *later = self.names[len(before) :]
        segment = self._load(name)
        if before and before[-1].end_index != segment.base_index:
            raise self._gap(before[-1], segment.base_index)
        check_link(self._directory, before, segment)
        trusted = segment.proven and check == "footer"
        if later:
            trusted = self._is_on_disk(segment, later)
        if check == "all" or not trusted:
            segment = self._examine(segment, later)
        before.append(segment)

    def _load(self, name: str) -> Segment:
        segment = load_segment(self._directory, name)
        if segment is None:
            path, base = self._directory.path_of(name), base_of_name(name)
            raise LogCorruptError(path, "its header block fails its checksum", 0, base)
        return segment

    def _header_of(self, name: str) -> SegmentHeader:
        """Return the header of a later segment, whose place in the log is not checked yet."""
        segment = self._load(name)
        wrong = why_not_named(segment)
        if wrong is not None:
            raise self._damage(segment, wrong, 0, segment.base_index)
        return segment.header

    def _damage(self, segment: Segment, what: str, offset: int, index: int) -> LogCorruptError:
        return LogCorruptError(self._directory.path_of(segment.name), what, offset, index)

    def _gap(self, before: Segment, base_index: int) -> LogCorruptError:
        what = f"the records {before.end_index} to {base_index} (exclusive) are missing"
        return LogCorruptError(self._directory.path, what, 0, before.end_index)

    def _is_on_disk(self, segment: Segment, later: list[str]) -> bool:
        """Return whether its footer fits the next segment, and all frames were on disk."""
        if not segment.sealed or segment.end_index != base_of_name(later[0]):
            return False
        return segment.proven or any(
            self._header_of(name).synced_index >= segment.end_index for name in later
        )

    def _examine(self, segment: Segment, later: list[str]) -> Segment:
        """Read one segment and decide whether it is intact, torn or damaged."""
        image = self._directory.map(segment.name)
        segment = scan(image, segment.name, segment.header)
        end, end_index = segment.end_offset, segment.end_index
        if not segment.sealed:
            rest = valid_frames(image, segment.header, end)
            proof = evidence_of_damage(rest, end_index)
            if proof is not None:
                what = f"the frame at byte {proof.offset} proves that records were confirmed here"
                raise self._damage(segment, what, end, end_index)
        follows = bool(later) and base_of_name(later[0]) == end_index
        if segment.sealed:
            if later and not follows:
                raise self._gap(segment, base_of_name(later[0]))
            return segment
        self.result.clean = False
        if follows:
            self._reseal(segment, len(image))
        else:
            self._refuse_if_confirmed(segment, later, len(image))
            self._set_aside(later)
            self._cut(segment, image)
        return segment

    def _refuse_if_confirmed(self, segment: Segment, later: list[str], size: int) -> None:
        """Search the segments after a torn one for proof that it was once intact on disk."""
        for name in later:
            header = self._header_of(name)
            frames = valid_frames(self._directory.map(name), header)
            synced = max((frame.synced_index for frame in frames), default=0)
            if max(synced, header.synced_index) > segment.end_index:
                what = f"{name} proves that the records from here on were confirmed"
                raise self._damage(segment, what, size, segment.end_index)

    def _set_aside(self, later: list[str]) -> None:
        """Move away the segments after a torn one: they were never confirmed on disk."""
        for name in reversed(later):
            frames = valid_frames(self._directory.map(name), self._header_of(name))
            if next(frames, None) is None:
                self._directory.rename(name, new_spare_name())
            else:
                self._directory.set_aside(self._directory.path_of(name), name)
                self._directory.unlink(name)
                self.result.aside.append(name)
            self._directory.sync()
            self.names.remove(name)

    def _cut(self, segment: Segment, image: Mapping) -> None:
        """Erase what follows the last valid frame."""
        end = segment.end_offset
        rest = image[end:]
        if rest.strip(b"\0"):
            path = self._directory.path_of(segment.name)
            self.result.cut.append((path, end, len(rest)))
        if rest:
            with self._directory.opened(segment.name, write=True) as handle:
                clear_from(self._directory.disk, handle, end, len(segment.index.offsets))

    def _reseal(self, segment: Segment, size: int) -> None:
        """Write the missing footer of an intact segment."""
        self.result.resealed.append(segment.name)
        handle = self._directory.open(segment.name, write=True)
        writer = SegmentWriter(self._directory.disk, handle, segment, size, size)
        try:
            writer.seal(segment.end_index)
            writer.sync()
        finally:
            writer.close()
        segment.sealed = True
