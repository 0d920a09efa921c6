"""Lists the segment files of a log and their contents, even if the log can't be opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pillarbox.cli.output import iso_or_none
from pillarbox.log import LogReader, RealDisk
from pillarbox.log.directory import LogDirectory, base_of_name
from pillarbox.log.frame import DATA
from pillarbox.log.layout import BLOCK_BYTES, decode_segment_header
from pillarbox.log.segments import Segment, evidence_of_damage, load_segment, scan, valid_frames


class SegmentFile(NamedTuple):
    """One segment file. `state` is sealed, open or damaged; then only the readable part counts."""

    name: str
    first_index: int
    records: int
    bytes: int
    file_bytes: int
    from_ns: int
    to_ns: int
    state: str

    def as_json(self) -> dict[str, Any]:
        fields = self._asdict()
        times = {"from": iso_or_none(fields.pop("from_ns")), "to": iso_or_none(fields.pop("to_ns"))}
        return fields | times | {"sealed": self.state == "sealed"}


def list_segments(log: str, names: list[str]) -> list[SegmentFile]:
    """Return the files in order, without those that the writer drops meanwhile."""
    segments = []
    for position, name in enumerate(names):
        try:
            segments.append(_segment(log, name, last=position == len(names) - 1))
        except FileNotFoundError:
            continue
    return segments


def _segment(log: str, name: str, *, last: bool) -> SegmentFile:
    base = base_of_name(name)
    sealed = load_segment(LogDirectory(RealDisk(), log), name)
    if sealed is not None and sealed.sealed:
        count, size = sealed.end_index - base, sealed.size_bytes
        times = sealed.min_time_ns, sealed.max_time_ns
        return SegmentFile(name, base, count, size, size, *times, "sealed")
    image = _read(log, name)
    header = decode_segment_header(image[:BLOCK_BYTES], f"{log}/{name}")
    if header is None:
        return SegmentFile(name, base, 0, 0, len(image), 0, 0, "damaged")
    scanned = scan(image, name, header)
    count = scanned.end_index - base
    times = scanned.min_time_ns, scanned.max_time_ns
    intact = last and not _has_hole(log, scanned, image)
    state = "open" if intact else "damaged"
    return SegmentFile(name, base, count, scanned.end_offset, len(image), *times, state)


def _read(log: str, name: str) -> bytes:
    """Read a file without mapping it, because the writer may truncate it."""
    return (Path(log) / name).read_bytes()


def _has_hole(log: str, scanned: Segment, image: bytes) -> bool:
    """Return whether confirmed frames follow an invalid one.

    Reads the file a second time, because the writer may have been writing during the first.
    """
    for data in (image, _read(log, scanned.name)):
        rest = valid_frames(data, scanned.header, scanned.end_offset)
        if evidence_of_damage(rest, scanned.end_index) is None:
            return False
    return scan(data, scanned.name, scanned.header).end_index == scanned.end_index


def durability_of(reader: LogReader, last: SegmentFile | None) -> str:
    """Describe the durability level of the newest frames, as far as they show it."""
    if last is None or reader.end_index == reader.first_index:
        return "unknown (the log is empty)"
    if last.state == "sealed":
        return "on disk (the log was closed)"
    block = list(reader.blocks(reader.end_index - 1, reader.end_index))[-1]
    frames = [frame for frame in block.frames if frame.kind == DATA]
    unsynced = [frame for frame in frames if frame.synced_index < frame.first_index]
    if unsynced:
        return f"os or memory (known to be on disk: up to {unsynced[-1].synced_index})"
    return "fsync (each frame waited for the one before it)" if len(frames) > 1 else "unknown"
