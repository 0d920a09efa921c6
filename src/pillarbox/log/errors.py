"""The errors of a log.

LogError
├── LogClosedError          the log is closed
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
    """The base class of all errors of a log."""

    def __reduce__(self) -> tuple[type[LogError], tuple[object, ...]]:
        # Subclasses with parameters store each in an attribute, in order.
        values = (value for name, value in vars(self).items() if name != "__notes__")
        return type(self), tuple(values) or self.args


class LogClosedError(LogError):
    """The log is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the log {path} is closed; open it again to use it")
        self.path = path


def holder_of_lock(pid: int | None) -> str:
    """Describe the process that holds a lock; `pid` is the one that took it, if known."""
    if not pid:
        return "another process"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return (
            f"a process that process {pid} started; process {pid} itself has ended"
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
            " open the log with readonly=True"
        )
        self.path = path
        self.pid = pid


class LogFullError(LogError):
    """The disk is full; nothing was written, and the log keeps working."""

    def __init__(self, path: str, need_bytes: int) -> None:
        super().__init__(
            f"no space left for {need_bytes} bytes in the log {path}; free some disk space, or"
            " shorten the retention, and try again: nothing was written"
        )
        self.path = path
        self.need_bytes = need_bytes


class LogPoisonedError(LogError):
    """A write or sync failed or was interrupted: the log is read-only from now on."""

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(
            f"the log {path} is read-only because a write or sync failed or was interrupted"
            f" ({cause}); confirmed records are safe, others may be lost: check the disk if it"
            " failed, then open the log again"
        )
        self.path = path
        self.cause = cause


class LogCorruptError(LogError):
    """Confirmed records are damaged or missing."""

    def __init__(self, path: str, what: str, offset: int = 0, index: int = 0) -> None:
        super().__init__(
            f"{path} is damaged at byte {offset} (index {index}): {what}; restore it from a"
            " backup, or run 'pillarbox log repair' to list the losses and save the rest"
        )
        self.path = path
        self.what = what
        self.offset = offset
        self.index = index


class RecordLostError(LogCorruptError):
    """This record was lost to damage, and the log was repaired without it."""


class LogFormatError(LogError):
    """The file is not a log, or its format is newer than this Pillarbox can read."""


class LogIndexError(LogError, IndexError):
    """The index is not in the log: not written yet, or dropped by retention."""

    def __init__(self, path: str, index: int, first: int, end: int) -> None:
        super().__init__(
            f"index {index} is not in the log {path}, which contains {first} up to {end}"
            " (exclusive); start from its first index, or pin what you still need"
        )
        self.path = path
        self.index = index
        self.first = first
        self.end = end


class RecordTooLargeError(LogError, ValueError):
    """A batch is larger than a frame can hold."""

    def __init__(self, path: str, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(
            f"a batch of {size_bytes} bytes exceeds the {size_bytes_max} bytes that one append to"
            f" {path} may have; split it, or store the data elsewhere and append a reference"
        )
        self.path = path
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max
