"""Finding damage beside a running writer, and saying which messages it hit."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pillarbox.cli.output import Advance
from pillarbox.cli.replica import Replica, replay
from pillarbox.core import journal
from pillarbox.log import Frame, RealDisk, Report, verify
from pillarbox.log.disk import Mapping
from pillarbox.log.frame import DATA, HEADER_BYTES, decode_records
from pillarbox.log.layout import BLOCK_BYTES, base_of_name, decode_segment_header
from pillarbox.log.scan import frames_after
from pillarbox.mailbox.compactor import SNAPSHOT_FILE, read_snapshot
from pillarbox.mailbox.place import Place

_TRIES = 5  # against a writer that drops, recycles or grows what we are reading


class BesideWriter(RealDisk):
    """A disk on which files may be mapped while a writer has the log open.

    The file that grows is copied, because a mapping of a file that is cut when it is sealed
    kills the process. The others are held with a shared lock, so they are not recycled.
    """

    def __init__(self, growing: str) -> None:
        self._growing = growing
        self._copy: set[int] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        handle = super().open(path, write=write, create=create)
        if path.rpartition("/")[2] >= self._growing:  # or one that came after it
            self._copy.add(handle)
        return handle

    def close(self, handle: int) -> None:
        self._copy.discard(handle)
        super().close(handle)

    def map(self, handle: int, size: int) -> Mapping:
        if handle in self._copy:
            return self.pread(handle, size, 0)
        fcntl.flock(handle, fcntl.LOCK_SH)
        return super().map(handle, size)


def check(place: Place, advance: Advance) -> Report:
    """Verify the log. Beside a writer, damage counts only if it is still there on a second look."""
    report = _verify(place, advance)
    if report.damage and place.writer() is not None:
        again = _verify(place, advance)
        again.damage = [each for each in again.damage if each in report.damage]
        return again
    return report


def _verify(place: Place, advance: Advance) -> Report:
    for attempt in range(_TRIES):
        names = place.segment_files()
        try:
            return verify(
                place.log, disk=BesideWriter(names[-1] if names else ""), progress=advance
            )
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def snapshot_is_damaged(place: Place) -> bool:
    """Whether there is a snapshot and it can't be used."""
    if place.store is None or not (Path(place.store) / SNAPSHOT_FILE).exists():
        return False
    return read_snapshot(RealDisk(), place.store) is None


@dataclass(frozen=True, slots=True)
class LostMessage:
    """A message that damage took from a store: its body, or all but the mention of it."""

    id: str
    queue: str
    index: int | None
    what: str


@dataclass(slots=True)
class Losses:
    """What is known of the messages behind damaged records."""

    messages: list[LostMessage] = field(default_factory=list)
    #: Records before the snapshot that no living message needs: history only.
    history: int = 0
    #: Records after the snapshot of which nothing is known.
    unknown: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def losses_of(place: Place, report: Report, advance: Advance) -> Losses | None:
    """Which messages the damage hit; None for a log that belongs to no store."""
    if place.store is None:
        return None
    replica = Replica(read_snapshot(RealDisk(), place.store))
    replay(replica, _salvage(place), _end(place), advance)
    gone = [range(each.first_index, each.end_index) for each in report.damage]
    found = Losses()
    bodies = 0
    for queue, record, index in replica.bodies():
        if any(index in each for each in gone):
            bodies += 1
            name = replica.names.message_id(record.key)
            found.messages.append(LostMessage(name, queue, index, "its body is lost"))
    mentioned = _mentioned(replica)
    found.messages.extend(mentioned)
    before = sum(_below(each, replica.snapshot_index) for each in gone)
    found.history = max(0, before - bodies)
    found.unknown = max(0, sum(map(len, gone)) - before - len(mentioned))
    return found


def _below(indices: range, limit: int) -> int:
    return max(0, min(indices.stop, limit) - indices.start)


def _mentioned(replica: Replica) -> list[LostMessage]:
    """Messages that later entries speak of, though what made them so is lost."""
    found: dict[int, LostMessage] = {}
    for entry in replica.misfits:
        if entry.key and entry.key not in found:
            kind = journal.KINDS.get(entry.kind, "?")
            found[entry.key] = LostMessage(
                replica.names.message_id(entry.key),
                replica.names.queue(entry.queue),
                None,
                f"an entry before it was {kind} is lost",
            )
    return list(found.values())


def _end(place: Place) -> int:
    names = place.segment_files()
    return base_of_name(names[-1]) + 1 if names else 1


def _salvage(place: Place) -> Iterator[Frame]:
    """Every whole frame of a log, whatever lies between them."""
    for name in place.segment_files():
        image = (Path(place.log) / name).read_bytes()
        header = decode_segment_header(image[:BLOCK_BYTES], name)
        if header is None:
            continue
        shift = base_of_name(name) - header.base_index
        for frame in frames_after(image, header, BLOCK_BYTES):
            if frame.kind == DATA:
                records = decode_records(image, frame, frame.offset + HEADER_BYTES)
                yield Frame(frame.first_index + shift, frame.time_ns, records)
