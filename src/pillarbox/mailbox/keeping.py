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

KEEPING_FILE = "keeping.json"


class Keeping(Struct, frozen=True, omit_defaults=True):
    """What is noted of a store that is kept in its own way."""

    segment_bytes: int = SEGMENT_BYTES
    history_bytes: int | None = 0
    history_seconds: float | None = None
    #: Of the log that is kept so: these settings are no other store's.
    log_id: str = ""

    @property
    def history(self) -> Retention:
        return Retention(age_seconds=self.history_seconds, bytes=self.history_bytes)

    def but(self, segment_bytes: int | None, history: Retention | None) -> Keeping:
        """The same, with what is given instead."""
        kept = self
        if segment_bytes is not None:
            kept = msgspec.structs.replace(kept, segment_bytes=segment_bytes)
        if history is not None:
            kept = msgspec.structs.replace(
                kept, history_bytes=history.bytes, history_seconds=history.age_seconds
            )
        return kept


def read_keeping(disk: Disk, path: str) -> Keeping:
    """What is noted in the store at `path`, or the usual way."""
    try:
        return msgspec.json.decode(read_file(disk, f"{path}/{KEEPING_FILE}"), type=Keeping)
    except FileNotFoundError:
        return Keeping()
    except msgspec.DecodeError as error:
        raise MailboxStorageError(
            f"{path}/{KEEPING_FILE} is damaged ({error}); delete it, and open the store with the "
            "segment_bytes and history that it should have"
        ) from error


def note_keeping(disk: Disk, path: str, keeping: Keeping) -> None:
    """Note it, if it is news. Only the one process that has the store may do so."""
    noted = read_keeping(disk, path)
    usual = Keeping(log_id=keeping.log_id)
    if keeping != noted and (keeping != usual or noted != Keeping()):
        replace_file(disk, path, KEEPING_FILE, msgspec.json.encode(keeping))
