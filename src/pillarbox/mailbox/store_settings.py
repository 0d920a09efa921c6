"""The saved settings of a store: segment size and history retention.

They are set when a mailbox is opened and saved in the store, so that later openers (another
program, `pillarbox log compact`) use the same ones.
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
