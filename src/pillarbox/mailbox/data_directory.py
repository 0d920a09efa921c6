"""Finds out what a directory contains: a store, the log of a store, or a plain log.

Also finds the process that writes to it. Opens and changes nothing. A path that is neither store
nor log may name a queue of the store in its parent directory.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from pillarbox.core import journal
from pillarbox.log import LogError, LogReader, RealDisk
from pillarbox.log.directory import LOCK_FILE, is_segment_name
from pillarbox.mailbox.store_files import SNAPSHOT_FILE

LOG = "log"  # the name of a store's log within its directory


def file_path(url: str) -> str | None:
    """Return the path of a `file:` URL or of a plain path; None for any other URL."""
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
        """Return the pid of the process that has it open for writing."""
        return _holder(f"{self.log}/{LOCK_FILE}")

    def segment_files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.log) if is_segment_name(name))


def data_directory_in(directory: str) -> DataDirectory | None:
    """Return the store or the log in a directory."""
    if is_log(f"{directory}/{LOG}"):
        return DataDirectory(f"{directory}/{LOG}", directory)
    if not is_log(directory):
        return None
    parent, name = os.path.split(os.path.abspath(directory))
    return DataDirectory(
        directory, parent if name == LOG and _belongs_to_store(directory, parent) else None
    )


def data_directory_at(path: str) -> DataDirectory | None:
    """Return the store or the log at a path, else the queue named by its last component."""
    found = data_directory_in(path)
    if found is not None:
        return found
    parent, queue = os.path.split(path)
    above = data_directory_in(parent or ".")
    if above is None or above.store is None or not queue:
        return None
    return DataDirectory(above.log, above.store, queue)


def is_log(directory: str) -> bool:
    """Return whether the directory contains a log, possibly an empty one."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(name == LOCK_FILE or is_segment_name(name) for name in names)


def _belongs_to_store(log: str, parent: str) -> bool:
    """Return whether there is a snapshot, or the log still has a store's first entry."""
    if os.path.exists(f"{parent}/{SNAPSHOT_FILE}"):
        return True
    try:
        with LogReader(log, RealDisk()) as reader:
            first = reader.get(0)
    except (LogError, OSError):
        return False
    return len(first) >= journal.HEAD.size and first[0] == journal.IDENTITY


def _holder(lock: str) -> int | None:
    """Return the pid in a lock file if that process is alive and holds the lock.

    Tries the lock only while that process is alive, so that the attempt cannot keep out a writer
    that is just starting.
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
        pass  # alive, but owned by another user
    with open(lock, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return pid
    return None
