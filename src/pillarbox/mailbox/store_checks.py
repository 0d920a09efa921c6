"""Checks that the log, snapshot and settings of a store belong together.

The snapshot and the settings contain the id of their log. Files from before this was introduced
contain none, and are accepted.
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
    """Return why a snapshot does not belong to a log with these records, or None."""
    if _is_of_another(state.log_id, log_id):
        return "belongs to another store"
    if state.index < first_index:
        return f"is too old: it ends at entry {state.index}, and the log begins at {first_index}"
    if end_index is not None and state.index > end_index:
        return f"is newer than the log: it ends at entry {state.index}, the log at {end_index}"
    return None


def settings_misfit(settings: StoreSettings, log_id: str) -> str | None:
    """Return why these settings do not belong to the store with this log, or None."""
    return "belongs to another store" if _is_of_another(settings.log_id, log_id) else None


def refuse_foreign(state: StoreState | None, path: str, log: ReadableLog) -> None:
    """Raise if the snapshot belongs to another log, for readers of a store that is in use."""
    if state is not None and _is_of_another(state.log_id, log.log_id.hex()):
        raise LogError(
            f"the snapshot of {path} belongs to another store; run 'pillarbox log verify {path}'"
        )


def identity_noted(disk: Disk, path: str) -> str:
    """Return the log id in a store's snapshot, else in its settings, else an empty string."""
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
    """Return the faults of a store's snapshot and settings, given its log."""
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
