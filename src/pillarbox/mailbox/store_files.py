"""The files beside a store's log: its settings, its clock and its snapshot.

Each is replaced atomically, and only by the process that has the store open. The settings are saved
so that later openers (another program, `pillarbox log compact`) use the same ones. The clock is
saved when the machine was restarted or its system time was set. The snapshot and the settings
contain the id of their log, to tell that they belong together. Stores of earlier versions have no
clock, and no ids: they are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

import google_crc32c
import msgspec
from msgspec import Struct

from pillarbox.clock import Anchor, WallClock
from pillarbox.core.errors import MailboxStorageError
from pillarbox.log import Disk, LogError, Retention
from pillarbox.log.disk import read_file, replace_file
from pillarbox.log.log import SEGMENT_BYTES
from pillarbox.log.readable_log import ReadableLog
from pillarbox.log.segments import NO_ID
from pillarbox.logger import logger
from pillarbox.mailbox.snapshot import StoreState, decode

SETTINGS_FILE = "keeping.json"
TIME_FILE = "time.json"
SNAPSHOT_FILE = "snapshot"
_MAGIC = b"PBXSNAP1"
_HEAD_BYTES = len(_MAGIC) + 4


class StoreSettings(Struct, frozen=True, omit_defaults=True):
    """The saved settings of a store."""

    segment_bytes: int = SEGMENT_BYTES
    history_bytes: int | None = 0
    history_seconds: float | None = None
    #: The id of the store's log: these settings belong to no other store.
    log_id: str = ""

    @property
    def history(self) -> Retention:
        return Retention(age_seconds=self.history_seconds, bytes=self.history_bytes)

    def but(self, segment_bytes: int | None, history: Retention | None) -> StoreSettings:
        """Return a copy with the given values replaced."""
        kept = self
        if segment_bytes is not None:
            kept = msgspec.structs.replace(kept, segment_bytes=segment_bytes)
        if history is not None:
            kept = msgspec.structs.replace(
                kept, history_bytes=history.bytes, history_seconds=history.age_seconds
            )
        return kept


def read_store_settings(disk: Disk, path: str) -> StoreSettings:
    """Return the settings of the store at `path`, or the defaults."""
    try:
        return msgspec.json.decode(read_file(disk, f"{path}/{SETTINGS_FILE}"), type=StoreSettings)
    except FileNotFoundError:
        return StoreSettings()
    except msgspec.DecodeError as error:
        raise MailboxStorageError(
            f"{path}/{SETTINGS_FILE} is damaged ({error}); delete it, and open the store with the "
            "segment_bytes and history that it should have"
        ) from error


def write_store_settings(disk: Disk, path: str, settings: StoreSettings) -> None:
    """Save the settings if they changed. Only the process that has the store open may call it."""
    noted = read_store_settings(disk, path)
    usual = StoreSettings(log_id=settings.log_id)
    if settings != noted and (settings != usual or noted != StoreSettings()):
        replace_file(disk, path, SETTINGS_FILE, msgspec.json.encode(settings))


# -- the clock ---------------------------------------------------------------------------------


def read_anchor(disk: Disk, path: str) -> Anchor | None:
    """Return the saved time of the store at `path`; None if missing or unreadable."""
    try:
        return msgspec.json.decode(read_file(disk, f"{path}/{TIME_FILE}"), type=Anchor)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        logger.error("the saved time of the store is damaged", store=path, error=str(error))
        return None


def store_time(disk: Disk, path: str, latest_ns: int) -> int:
    """Return the current time of the store at `path`, for read-only tools."""
    clock = WallClock()
    clock.go_on_from(latest_ns, read_anchor(disk, path))
    return clock.now()


class Timekeeper:
    """Saves a store's time when necessary."""

    def __init__(self, disk: Disk, path: str, clock: WallClock) -> None:
        self._disk, self._path, self._clock = disk, path, clock
        self._noted = read_anchor(disk, path)

    def go_on(self, latest_ns: int, latest_wall_ns: int) -> None:
        """On open, continue from the saved time or, in an old store, from the latest known time."""
        latest = latest_ns if self._noted is not None else max(latest_ns, latest_wall_ns)
        self._clock.go_on_from(latest, self._noted)
        self.note()

    def note(self) -> None:
        """Save the time if the system clock was changed; on a full disk, try again later."""
        anchor = self._clock.anchor()
        if anchor == self._noted:
            return
        try:
            replace_file(self._disk, self._path, TIME_FILE, msgspec.json.encode(anchor))
        except OSError as error:
            logger.warning(
                "could not save the time of the store", store=self._path, error=str(error)
            )
        else:
            self._noted = anchor


# -- the snapshot ------------------------------------------------------------------------------


def read_snapshot(disk: Disk, path: str) -> StoreState | None:
    """Return the state of the last snapshot; None if it is missing or damaged."""
    try:
        content = read_file(disk, f"{path}/{SNAPSHOT_FILE}")
    except FileNotFoundError:
        return None
    state = content[_HEAD_BYTES:]
    if content[:_HEAD_BYTES] != snapshot_head(state):
        logger.error("the snapshot is damaged; replaying the whole log instead", store=path)
        return None
    return decode(state)


def snapshot_head(state: bytes) -> bytes:
    """Return what precedes the state in a snapshot file."""
    checksum: int = google_crc32c.value(state)
    return _MAGIC + checksum.to_bytes(4, "little")


# -- what belongs together ---------------------------------------------------------------------


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
