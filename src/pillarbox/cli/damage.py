"""Finding damage beside a running writer, and saying which messages it hit."""

from __future__ import annotations

import fcntl
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from pillarbox.cli.output import Advance
from pillarbox.cli.replica import Replica, replay
from pillarbox.core import journal
from pillarbox.log import Log, RealDisk, Report, repair, verify
from pillarbox.log.disk import Mapping
from pillarbox.log.repair import salvage
from pillarbox.log.rewrite import set_aside
from pillarbox.mailbox.belonging import Fault, faults, identity_noted, snapshot_misfit
from pillarbox.mailbox.compactor import SNAPSHOT_FILE, read_snapshot
from pillarbox.mailbox.ledger import DurableStore
from pillarbox.mailbox.place import Place
from pillarbox.mailbox.snapshot import StoreState

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


@dataclass(slots=True)
class Checked:
    """What was found in a log, and in the files of the store that it belongs to."""

    report: Report
    #: What the store says about its log: its id, and the records that it must hold.
    log_id: str = ""
    needs: tuple[int, int] | None = None
    faults: list[Fault] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return self.report.healthy and not self.faults


def check(place: Place, advance: Advance) -> Checked:
    """Verify a log and its store.

    Beside a writer, damage counts only if it is still there on a second look.
    """
    checked = _check(place, advance)
    if not checked.healthy and place.writer() is not None:
        again = _check(place, advance)
        known = checked.report.damage
        again.report.damage = [each for each in again.report.damage if each in known]
        again.faults = [each for each in again.faults if each in checked.faults]
        return again
    return checked


def _check(place: Place, advance: Advance) -> Checked:
    if place.store is None:
        return Checked(_verify(place, advance))
    disk = RealDisk()
    # Before the log, which may grow meanwhile.
    state, log_id = read_snapshot(disk, place.store), identity_noted(disk, place.store)
    report = _verify(place, advance, log_id)
    needs = _needs(place, state, report, advance)
    if needs is not None:
        report = _verify(place, advance, log_id, needs)
    found = faults(disk, place.store, state, report.log_id, report.first_index, report.end_index)
    return Checked(report, log_id, needs, found)


def _needs(
    place: Place, state: StoreState | None, report: Report, advance: Advance
) -> tuple[int, int] | None:
    """The records that a store's log must hold; None if it does hold them."""
    if state is None or snapshot_misfit(state, report.log_id, report.first_index) is not None:
        return None
    oldest = state.oldest
    if oldest < report.first_index:  # but what lay there may have been written again since
        replica = Replica(state)
        replay(replica, salvage(place.log, log_id=report.log_id), report.end_index, advance)
        oldest = min((index for _, _, index in replica.bodies()), default=state.index)
    if oldest >= report.first_index and state.index <= report.end_index:
        return None
    return min(oldest, report.first_index), state.index


def _verify(
    place: Place, advance: Advance, log_id: str = "", needs: tuple[int, int] | None = None
) -> Report:
    for attempt in range(_TRIES):
        names = place.segment_files()
        disk = BesideWriter(names[-1] if names else "")
        try:
            return verify(place.log, disk=disk, progress=advance, log_id=log_id, needs=needs)
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def mend(place: Place, checked: Checked, advance: Advance) -> list[str]:
    """Repair a log and its store, and open them to see; the files that were kept aside."""
    kept = repair(
        place.log, progress=advance, log_id=checked.log_id, needs=checked.needs
    ).kept_aside
    for fault in checked.faults:
        file = f"{place.store}/{fault.file}"
        kept.append(set_aside(RealDisk(), place.log, file, fault.file))
        os.unlink(file)
    if place.store is None:
        Log.open(place.log, check="all").close()
    else:
        store = DurableStore(place.store)
        store.compactor.stop()
        store.log.close()  # not the store: the snapshot that it had is a witness
    return kept


def not_mendable(checked: Checked) -> str | None:
    """Why a repair could not make a store whole, if that is so."""
    report = checked.report
    if report.unsure is not None:
        return report.unsure
    for fault in checked.faults:
        if fault.file != SNAPSHOT_FILE:
            return (
                f"{fault.file} {fault.what}: put the right one back, or delete it and open the"
                " store with the segment_bytes and history that it should have"
            )
        lost = [(each.first_index, each.end_index) for each in report.damage]
        if report.first_index > 0 or any(a <= 0 < b for a, b in (*lost, *report.lost_before)):
            return (
                f"the snapshot {fault.what}, and the log no longer goes back to the beginning:"
                " restore the store from a backup"
            )
    return None


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


def losses_of(place: Place, checked: Checked, advance: Advance) -> Losses | None:
    """Which messages the damage hit; None for a log that belongs to no store."""
    if place.store is None:
        return None
    report = checked.report
    foreign = any(fault.file == SNAPSHOT_FILE for fault in checked.faults)
    replica = Replica(None if foreign else read_snapshot(RealDisk(), place.store))
    replay(replica, salvage(place.log, log_id=report.log_id), report.end_index, advance)
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
