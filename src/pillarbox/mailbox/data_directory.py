"""What lies in a directory: a store, the log of a store, or a plain log; and who writes to it.

Nothing is opened, and nothing is touched. A path that is neither may name a queue: that of the
store in the directory above it.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from pillarbox.core import journal
from pillarbox.log import LogError, LogReader, RealDisk
from pillarbox.log.directory import LOCK_FILE, is_segment_name
from pillarbox.mailbox.compactor import SNAPSHOT_FILE

LOG = "log"  # the name of a store's log within its directory


def file_path(url: str) -> str | None:
    """The path that a `file:` URL or a path without a scheme names; None for any other URL."""
    if url.startswith("file:"):
        return url.removeprefix("file:").removeprefix("//")
    return None if "://" in url or url.startswith("memory:") else url


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """A log, the store that it belongs to (if any), and the queue that was named (if any)."""

    log: str
    store: str | None = None
    queue: str | None = None

    @property
    def name(self) -> str:
        return self.store or self.log

    def writer(self) -> int | None:
        """The process that has it open for writing."""
        return _holder(f"{self.log}/{LOCK_FILE}")

    def segment_files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.log) if is_segment_name(name))


def data_directory_in(directory: str) -> DataDirectory | None:
    """The store or the log in a directory."""
    if is_log(f"{directory}/{LOG}"):
        return DataDirectory(f"{directory}/{LOG}", directory)
    if not is_log(directory):
        return None
    parent, name = os.path.split(os.path.abspath(directory))
    return DataDirectory(
        directory, parent if name == LOG and _is_of_a_store(directory, parent) else None
    )


def data_directory_at(path: str) -> DataDirectory | None:
    """The store or the log at a path; else the queue that its last part names."""
    found = data_directory_in(path)
    if found is not None:
        return found
    parent, queue = os.path.split(path)
    above = data_directory_in(parent or ".")
    if above is None or above.store is None or not queue:
        return None
    return DataDirectory(above.log, above.store, queue)


def is_log(directory: str) -> bool:
    """Whether there is a log in the directory, be it an empty one."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(name == LOCK_FILE or is_segment_name(name) for name in names)


def _is_of_a_store(log: str, parent: str) -> bool:
    """A store has a snapshot, or its log still has the store's first entry."""
    if os.path.exists(f"{parent}/{SNAPSHOT_FILE}"):
        return True
    try:
        with LogReader(log, RealDisk()) as reader:
            first = reader.get(0)
    except (LogError, OSError):
        return False
    return len(first) >= journal.HEAD.size and first[0] == journal.IDENTITY


def _holder(lock: str) -> int | None:
    """The pid in a lock file, if that process is there and holds the lock.

    The lock is tried only while that process is alive, so that no writer that is about to
    start can be kept out by the trial.
    """
    try:
        pid = int(Path(lock).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it is there, and somebody else's
    with open(lock, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return pid
    return None
