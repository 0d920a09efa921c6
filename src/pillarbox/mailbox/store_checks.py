"""Whether the files of a store belong together: its log, its snapshot, its settings.

The snapshot and the settings name the log that they were written beside. What was written
before they did so names none, and is taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from pillarbox.core.errors import MailboxStorageError
from pillarbox.log import Disk, LogError
from pillarbox.log.readable_log import ReadableLog
from pillarbox.log.segments import NO_ID
from pillarbox.mailbox.compactor import SNAPSHOT_FILE, read_snapshot
from pillarbox.mailbox.snapshot import StoreState
from pillarbox.mailbox.store_settings import SETTINGS_FILE, StoreSettings, read_store_settings


@dataclass(frozen=True, slots=True)
class Fault:
    """A file of a store that can't be used, and why."""

    file: str
    what: str


def _is_of_another(noted: str, log_id: str) -> bool:
    return bool(noted) and log_id not in ("", NO_ID.hex(), noted)


def snapshot_misfit(
    state: StoreState, log_id: str, first_index: int, end_index: int | None = None
) -> str | None:
    """Why a snapshot does not belong to a log that holds these records, if that is so."""
    if _is_of_another(state.log_id, log_id):
        return "belongs to another store"
    if state.index < first_index:
        return f"is too old: it ends at entry {state.index}, and the log begins at {first_index}"
    if end_index is not None and state.index > end_index:
        return f"is newer than the log: it ends at entry {state.index}, the log at {end_index}"
    return None


def settings_misfit(settings: StoreSettings, log_id: str) -> str | None:
    """Why these settings are not those of the store with this log, if that is so."""
    return "belongs to another store" if _is_of_another(settings.log_id, log_id) else None


def refuse_foreign(state: StoreState | None, path: str, log: ReadableLog) -> None:
    """For those who read a store beside its writer: its snapshot must be of this log."""
    if state is not None and _is_of_another(state.log_id, log.log_id.hex()):
        raise LogError(
            f"the snapshot of {path} belongs to another store; run 'pillarbox log verify {path}'"
        )


def identity_noted(disk: Disk, path: str) -> str:
    """The id of the log that a store's snapshot names, or else its settings; "" if none does."""
    state = read_snapshot(disk, path)
    if state is not None and state.log_id:
        return state.log_id
    try:
        return read_store_settings(disk, path).log_id
    except MailboxStorageError:
        return ""


def faults(
    disk: Disk,
    path: str,
    state: StoreState | None,
    log_id: str,
    first_index: int,
    end_index: int,
) -> list[Fault]:
    """What is wrong with the snapshot and the settings of a store whose log is this one."""
    found = []
    what = None
    if state is not None:
        what = snapshot_misfit(state, log_id, first_index, end_index)
    elif SNAPSHOT_FILE in disk.names(path):
        what = "fails its checksum"
    elif first_index > 0:
        what = "is missing"
    if what is not None:
        found.append(Fault(SNAPSHOT_FILE, what))
    try:
        what = settings_misfit(read_store_settings(disk, path), log_id)
    except MailboxStorageError:
        what = "is damaged"
    if what is not None:
        found.append(Fault(SETTINGS_FILE, what))
    return found
