"""Every error a log can raise; each says what happened, to which path, and what to do.

LogError
├── LogClosedError          the log was closed
├── LogLockedError          another process writes to it
├── LogFullError            no space left on the device; nothing was changed
├── LogPoisonedError        a write or a sync failed; read-only from now on
├── LogCorruptError         confirmed records are damaged or missing
│   └── RecordLostError     this one is gone for good; the log was repaired without it
├── LogFormatError          not a log, or written by a newer Pillarbox
├── LogIndexError           that index is not in the log (any more)
└── RecordTooLargeError     a record or a batch is larger than a frame can hold
"""

from __future__ import annotations

import os


class LogError(Exception):
    """Something went wrong with a log."""


class LogClosedError(LogError):
    """The log was closed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the log {path} is closed; open it again to use it")
        self.path = path


def holder_of_lock(pid: int | None) -> str:
    """Who holds a lock, for an error; `pid` is who took it, as far as it is known."""
    if not pid:
        return "another process"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return (
            f"a process that process {pid} started; process {pid} itself is not running any more"
            " (or runs in another container)"
        )
    except PermissionError:
        pass
    return f"process {pid}"


class LogLockedError(LogError):
    """Another process has the log open for writing."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(
            f"the log {path} is open for writing in {holder_of_lock(pid)}; stop that process, or"
            " open the log with readonly=True to read beside it"
        )
        self.path = path
        self.pid = pid

    def __reduce__(self) -> tuple[type[LogLockedError], tuple[str, int | None]]:
        return type(self), (self.path, self.pid)


class LogFullError(LogError):
    """There is no space for the record; nothing was written and the log goes on working."""

    def __init__(self, path: str, need_bytes: int) -> None:
        super().__init__(
            f"no space left for {need_bytes} bytes in the log {path}; free some disk space (or"
            " shorten its retention) and try again: nothing was written"
        )
        self.path = path
        self.need_bytes = need_bytes

    def __reduce__(self) -> tuple[type[LogFullError], tuple[str, int]]:
        return type(self), (self.path, self.need_bytes)


class LogPoisonedError(LogError):
    """A write or sync failed, or a signal handler raised in it: nothing more is confirmed.

    What was confirmed stays readable.
    """

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(
            f"the log {path} is read-only because a write or sync failed or was interrupted"
            f" ({cause}); what was confirmed is safe, what was not may be lost: check the disk if"
            " it failed, then open the log again"
        )
        self.path = path
        self.cause = cause

    def __reduce__(self) -> tuple[type[LogPoisonedError], tuple[str, str]]:
        return type(self), (self.path, self.cause)


class LogCorruptError(LogError):
    """Records that were confirmed are damaged or missing."""

    def __init__(self, path: str, what: str, offset: int = 0, index: int = 0) -> None:
        super().__init__(
            f"{path} is damaged at byte {offset} (index {index}): {what}; restore it from a copy,"
            " or run 'pillarbox log repair' to list what is lost and keep the rest"
        )
        self.path = path
        self.what = what
        self.offset = offset
        self.index = index

    def __reduce__(self) -> tuple[type[LogCorruptError], tuple[str, str, int, int]]:
        return type(self), (self.path, self.what, self.offset, self.index)


class RecordLostError(LogCorruptError):
    """This record was lost to damage, and the log was repaired without it."""


class LogFormatError(LogError):
    """The file is not a log, or its format is newer than this Pillarbox."""


class LogIndexError(LogError, IndexError):
    """The index is not in the log: not yet written, or already dropped by retention."""

    def __init__(self, path: str, index: int, first: int, end: int) -> None:
        super().__init__(
            f"index {index} is not in the log {path}, which holds {first} up to {end}"
            " (exclusive); start from its first index, or pin what you still need"
        )
        self.path = path
        self.index = index
        self.first = first
        self.end = end

    def __reduce__(self) -> tuple[type[LogIndexError], tuple[str, int, int, int]]:
        return type(self), (self.path, self.index, self.first, self.end)


class RecordTooLargeError(LogError, ValueError):
    """A batch is larger than one frame can hold."""

    def __init__(self, path: str, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(
            f"a batch of {size_bytes} bytes is more than the {size_bytes_max} that one append to"
            f" {path} may hold; split it, or store the bytes elsewhere and append their address"
        )
        self.path = path
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max

    def __reduce__(self) -> tuple[type[RecordTooLargeError], tuple[str, int, int]]:
        return type(self), (self.path, self.size_bytes, self.size_bytes_max)
