"""Checks and repairs a log and its store, and prints the damage and the affected messages."""

from __future__ import annotations

import fcntl
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.text import Text

from pillarbox.cli import output
from pillarbox.cli.output import Advance
from pillarbox.cli.replica import replay, retry_while_compacting
from pillarbox.core import journal
from pillarbox.log import Log, RealDisk, Report, repair, verify
from pillarbox.log.directory import LogDirectory
from pillarbox.log.disk import Mapping
from pillarbox.log.repair import salvage
from pillarbox.mailbox.data_directory import DataDirectory
from pillarbox.mailbox.durable_session import index_of
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.replay import Replay, all_records
from pillarbox.mailbox.snapshot import StoreState
from pillarbox.mailbox.store_files import (
    SNAPSHOT_FILE,
    Fault,
    faults,
    identity_noted,
    read_snapshot,
    snapshot_misfit,
)

_LISTED_MAX = 50  # lines about lost messages; --json has all of them


class SharedDisk(RealDisk):
    """A disk on which files can be mapped while a writer has the log open.

    The growing file is copied: sealing truncates it, and reading a truncated mapping would kill
    the process. A shared lock on every other file prevents the writer from recycling it.
    """

    def __init__(self, growing: str) -> None:
        self._growing = growing
        self._copy: set[int] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        handle = super().open(path, write=write, create=create)
        if path.rpartition("/")[2] >= self._growing:  # or a newer segment
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
    """The state of a log and of the other files of its store."""

    report: Report
    #: What the store expects of its log: its id, and the range of records it must contain.
    log_id: str = ""
    needs: tuple[int, int] | None = None
    faults: list[Fault] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return self.report.healthy and not self.faults


def check(data: DataDirectory, advance: Advance) -> Checked:
    """Verify a log and its store. While a process writes to it, report only repeated damage."""
    checked = _check(data, advance)
    if not checked.healthy and data.writer() is not None:
        second = _check(data, advance)
        first_damage = checked.report.damage
        second.report.damage = [each for each in second.report.damage if each in first_damage]
        second.faults = [each for each in second.faults if each in checked.faults]
        return second
    return checked


def _check(data: DataDirectory, advance: Advance) -> Checked:
    if data.store is None:
        return Checked(_verify(data, advance))
    disk = RealDisk()
    # Read before the log, which may grow meanwhile.
    state, log_id = read_snapshot(disk, data.store), identity_noted(disk, data.store)
    report = _verify(data, advance, log_id)
    needs = _needs(data, state, report, advance)
    if needs is not None:
        report = _verify(data, advance, log_id, needs)
    problems = faults(disk, data.store, state, report.log_id, report.first_index, report.end_index)
    return Checked(report, log_id, needs, problems)


def _needs(
    data: DataDirectory, state: StoreState | None, report: Report, advance: Advance
) -> tuple[int, int] | None:
    """Return the range of records that a store needs in its log; None if all are there."""
    if state is None or snapshot_misfit(state, report.log_id, report.first_index) is not None:
        return None
    oldest = state.oldest
    if oldest < report.first_index:  # but the compactor may have rewritten them since
        replayed = replay(state, salvage(data.log, log_id=report.log_id), report.end_index, advance)
        records = all_records(replayed.queues.values())
        oldest = min((index_of(record.body) for record in records), default=state.index)
    if oldest >= report.first_index and state.index <= report.end_index:
        return None
    return min(oldest, report.first_index), state.index


def _verify(
    data: DataDirectory, advance: Advance, log_id: str = "", needs: tuple[int, int] | None = None
) -> Report:
    def read() -> Report:
        names = data.segment_files()
        disk = SharedDisk(names[-1] if names else "")
        return verify(data.log, disk=disk, progress=advance, log_id=log_id, needs=needs)

    return retry_while_compacting(read)


def repair_store(data: DataDirectory, checked: Checked, advance: Advance) -> list[str]:
    """Repair a log and its store, and open them as a test; return the files set aside."""
    report = repair(data.log, progress=advance, log_id=checked.log_id, needs=checked.needs)
    aside = report.kept_aside
    for fault in checked.faults:
        file = f"{data.store}/{fault.file}"
        aside.append(LogDirectory(RealDisk(), data.log).set_aside(file, fault.file))
        os.unlink(file)
    if data.store is None:
        Log.open(data.log, check="all").close()
    else:
        store = DurableStore(data.store)
        store.compactor.stop()
        store.log.close()  # not the store, which would replace its snapshot
    return aside


def not_repairable_because(checked: Checked) -> str | None:
    """Return why a repair can't restore the store; None if it can."""
    report = checked.report
    if report.unsure is not None:
        return report.unsure
    for fault in checked.faults:
        if fault.file != SNAPSHOT_FILE:
            return (
                f"{fault.file} {fault.what}: restore it, or delete it and open the store with the"
                " segment_bytes and history that it should have"
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
    """A message whose body, or the entry that created it, is lost."""

    id: str
    queue: str
    index: int | None
    what: str


@dataclass(slots=True)
class Losses:
    """The messages behind damaged records."""

    messages: list[LostMessage] = field(default_factory=list)
    #: Lost records before the snapshot that no live message needs: only history.
    history: int = 0
    #: Lost records after the snapshot whose messages are unknown.
    unknown: int = 0


def losses_of(data: DataDirectory, checked: Checked, advance: Advance) -> Losses | None:
    """Return the messages that the damage affects; None for a plain log."""
    if data.store is None:
        return None
    report = checked.report
    foreign = any(fault.file == SNAPSHOT_FILE for fault in checked.faults)
    state = None if foreign else read_snapshot(RealDisk(), data.store)
    replayed = replay(state, salvage(data.log, log_id=report.log_id), report.end_index, advance)
    lost = [range(each.first_index, each.end_index) for each in report.damage]
    losses = Losses()
    bodies = 0
    for queue in replayed.queues.values():
        for record in all_records([queue]):
            index = index_of(record.body)
            if any(index in each for each in lost):
                bodies += 1
                name = replayed.names.message_id(record.key)
                losses.messages.append(LostMessage(name, queue.name, index, "its body is lost"))
    mentioned = _mentioned(replayed)
    losses.messages.extend(mentioned)
    before = sum(_below(each, replayed.start) for each in lost)
    losses.history = max(0, before - bodies)
    losses.unknown = max(0, sum(map(len, lost)) - before - len(mentioned))
    return losses


def _below(indices: range, limit: int) -> int:
    return max(0, min(indices.stop, limit) - indices.start)


def _mentioned(replayed: Replay) -> list[LostMessage]:
    """Return messages that entries mention although their earlier entries are lost."""
    lost: dict[int, LostMessage] = {}
    for entry in replayed.misfits:
        if entry.key and entry.key not in lost:
            kind = journal.KINDS.get(entry.kind, "?")
            lost[entry.key] = LostMessage(
                replayed.names.message_id(entry.key),
                replayed.names.queue(entry.queue),
                None,
                f"the entry before it was {kind} is lost",
            )
    return list(lost.values())


def check_as_json(data: DataDirectory, checked: Checked) -> dict[str, Any]:
    document = asdict(checked.report)
    torn = document.pop("torn_tail")
    document["torn_tail"] = torn and dict(zip(("file", "first_byte", "bytes"), torn, strict=True))
    document["faults"] = [asdict(fault) for fault in checked.faults]
    document["snapshot_damaged"] = any(fault.file == SNAPSHOT_FILE for fault in checked.faults)
    return {"store": data.store, "healthy": checked.healthy} | document


def show_check(data: DataDirectory, checked: Checked) -> None:
    console, report = output.console(), checked.report
    _show_damage(report)
    for fault in checked.faults:
        console.print(f"{data.store}/{fault.file} {fault.what}", style="red")
    verdict = "intact" if checked.healthy else "damaged"
    console.print(
        f"{data.name} is {verdict}: {output.count(report.records, 'record')} in"
        f" {output.count(report.frames, 'frame')}, {output.count(report.segments, 'segment')},"
        f" {output.size(report.bytes)}",
        style="green" if checked.healthy else "bold red",
    )


def _show_damage(report: Report) -> None:
    console = output.console()
    for each in report.damage:
        text = Text.assemble((f"{each.file}", "red"))
        if each.end_byte:
            text.append(f"  bytes {each.first_byte} to {each.end_byte}")
        text.append(f": {each.what}; ")
        count = each.end_index - each.first_index
        lost = f"{output.count(count, 'record')} lost: {each.first_index} up to {each.end_index}"
        text.append(lost if count else "no records lost", style="bold")
        console.print(text)
    for first, end in report.lost_before:
        console.print(f"lost before an earlier repair: {first} up to {end}", style="yellow")
    if report.torn_tail is not None:
        file, at, count = report.torn_tail
        console.print(
            f"{file}  byte {at}: {count} bytes were never confirmed; opening the log removes them",
            style="yellow",
        )


def show_losses(lost: Losses | None) -> None:
    if lost is None:
        return
    console = output.console()
    for each in lost.messages[:_LISTED_MAX]:
        where = f" (record {each.index})" if each.index is not None else ""
        console.print(f"message {each.id} of {each.queue}: {each.what}{where}")
    if len(lost.messages) > _LISTED_MAX:
        console.print(f"... and {len(lost.messages) - _LISTED_MAX} more; --json lists them all")
    if lost.history:
        console.print(f"{lost.history} lost records are history that no live message needs")
    if lost.unknown:
        console.print(
            f"{lost.unknown} lost records were written after the last snapshot; the messages sent,"
            " received or acknowledged in them are unknown"
        )


def show_end(data: DataDirectory, checked: Checked, *, repaired: bool, refused: str | None) -> None:
    """Print the result of a repair."""
    if repaired:
        aside = ", ".join(f"{data.log}/{each}" for each in checked.report.kept_aside)
        files = f"; the replaced files are kept: {aside}" if aside else ""
        output.console().print(output.success(f"repaired, and opened successfully{files}"))
    elif refused is not None:
        output.console().print(f"not repairable: {refused}", style="bold red")
    elif not checked.healthy:
        output.console().print("nothing was changed")
