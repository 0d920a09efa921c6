"""How a store keeps its log: how large its segments are, and how much history stays.

It is given when a mailbox is opened and noted in the store, so that whoever opens the store
later (another program, `pillarbox log compact`) keeps it the same way without being told.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from pillarbox.core.errors import MailboxStorageError
from pillarbox.log import Disk, Retention
from pillarbox.log.disk import read_file, replace_file
from pillarbox.log.log import SEGMENT_BYTES

SETTINGS_FILE = "keeping.json"


class StoreSettings(Struct, frozen=True, omit_defaults=True):
    """What is noted of a store that is kept in its own way."""

    segment_bytes: int = SEGMENT_BYTES
    history_bytes: int | None = 0
    history_seconds: float | None = None
    #: Of the log that is kept so: these settings are no other store's.
    log_id: str = ""

    @property
    def history(self) -> Retention:
        return Retention(age_seconds=self.history_seconds, bytes=self.history_bytes)

    def but(self, segment_bytes: int | None, history: Retention | None) -> StoreSettings:
        """The same, with what is given instead."""
        kept = self
        if segment_bytes is not None:
            kept = msgspec.structs.replace(kept, segment_bytes=segment_bytes)
        if history is not None:
            kept = msgspec.structs.replace(
                kept, history_bytes=history.bytes, history_seconds=history.age_seconds
            )
        return kept


def read_store_settings(disk: Disk, path: str) -> StoreSettings:
    """What is noted in the store at `path`, or the usual way."""
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
    """Note it, if it is news. Only the one process that has the store may do so."""
    noted = read_store_settings(disk, path)
    usual = StoreSettings(log_id=settings.log_id)
    if settings != noted and (settings != usual or noted != StoreSettings()):
        replace_file(disk, path, SETTINGS_FILE, msgspec.json.encode(settings))
