"""What PATH means on the command line: a store, its log, a plain log, or the URL of a mailbox."""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from pillarbox.core import journal
from pillarbox.log import LogError, LogReader, RealDisk
from pillarbox.log.layout import is_segment_name
from pillarbox.log.log import LOCK_FILE
from pillarbox.log.recovery import ASIDE
from pillarbox.mailbox.compactor import SNAPSHOT_FILE

_LOG = "log"  # the name of a store's log within its directory
_SCHEME = "file:"


@dataclass(frozen=True, slots=True)
class Place:
    """A log, the store that it belongs to (if any), and the queue that a URL named (if any)."""

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


def place_of(text: str) -> Place:
    """Find the log behind PATH; LogError if there is none."""
    if not text.startswith(_SCHEME):
        return _of_directory(text)
    path = text.removeprefix(_SCHEME).removeprefix("//")
    with contextlib.suppress(LogError):
        return _of_directory(path)
    directory, slash, queue = path.rpartition("/")
    found = _of_directory((directory or "/") if slash else ".")
    return Place(found.log, found.store, queue)


def _of_directory(path: str) -> Place:
    directory = Path(path)
    if not directory.is_dir():
        raise LogError(f"there is no directory {path}; give the directory of a store or of a log")
    if (directory / _LOG).is_dir():
        return Place(str(directory / _LOG), str(directory))
    if not _has_segments(directory):
        raise LogError(f"there is neither a store nor a log in {path}; give the directory of one")
    absolute = directory.absolute()
    if absolute.name == _LOG and _of_a_store(directory, absolute.parent):
        return Place(str(directory), str(absolute.parent))
    return Place(str(directory))


def _has_segments(directory: Path) -> bool:
    return any(is_segment_name(name) or name == LOCK_FILE for name in os.listdir(directory))


def _of_a_store(log: Path, parent: Path) -> bool:
    """A store has a snapshot, or its log still has the store's first entry."""
    if (parent / SNAPSHOT_FILE).exists():
        return True
    try:
        with LogReader(str(log), RealDisk()) as reader:
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


def bytes_on_disk(store: str) -> int:
    """What a store takes on disk, without what repairs have put aside."""
    total = 0
    for directory, inside, files in os.walk(store):
        inside[:] = [name for name in inside if name != ASIDE]
        total += sum((Path(directory) / name).stat().st_size for name in files)
    return total
