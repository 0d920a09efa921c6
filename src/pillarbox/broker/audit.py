"""The audit log: who created, changed, purged or deleted a queue, and when.

One JSON object per line, appended to a file that only the broker's user can read. It includes
requests that were denied, but no sends or receives.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from threading import Lock
from typing import Final, TextIO

import msgspec

from pillarbox.core.errors import InvalidParameterError

ACTIONS: Final = frozenset(
    (
        "CreateQueue",
        "DeleteQueue",
        "SetQueueAttributes",
        "PurgeQueue",
        "StartMessageMoveTask",
        "CancelMessageMoveTask",
        "TagQueue",
        "UntagQueue",
        "AddPermission",
        "RemovePermission",
        "Backup",
    )
)


class AuditLog:
    """Appends to a file; call `reopen` after rotating it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._open()
        self._lock = Lock()  # the dashboard works in threads

    def _open(self) -> TextIO:
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            wanted = f"a file that can be written ({error.strerror})"
            raise InvalidParameterError("audit_log", self._path, wanted) from error
        return os.fdopen(handle, "a", buffering=1)

    def note(self, key: str, action: str, queue: str, *, by: str, allowed: bool = True) -> None:
        """Append an action; `key` is empty without keys, `by` is the interface used."""
        entry = {
            "time": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds"),
            "key": key,
            "action": action,
            "queue": queue,
            "by": by,
            "allowed": allowed,
        }
        with self._lock:
            self._file.write(msgspec.json.encode(entry).decode() + "\n")

    def reopen(self) -> None:
        """Open the file again, because it was renamed; if that fails, the old one stays."""
        with self._lock:
            before, self._file = self._file, self._open()
        with suppress(OSError):  # a full disk: what it did not take is lost
            before.close()

    def close(self) -> None:
        self._file.close()
