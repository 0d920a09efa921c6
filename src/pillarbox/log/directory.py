"""The directory of a log: its lock, and the names of the files in it."""

from __future__ import annotations

import itertools
import logging
import os
import re
import secrets
from contextlib import AbstractContextManager

from pillarbox.log.disk import Disk, Mapping, make_directory, opened, read_file, write_all
from pillarbox.log.errors import LogFormatError, LogLockedError

_logger = logging.getLogger("pillarbox.log")

LOCK_FILE = "lock"
#: Subdirectory for files that do not belong, and for the originals of repaired ones.
ASIDE = "aside"
#: Files that can become segments.
SPARE_PREFIX = "spare-"
RESERVE_PREFIX = "reserve-"
#: A segment that a repair is renaming.
MOVED_SUFFIX = ".moved"
_SEGMENT_NAME = re.compile(r"\d{20}\.seg")
#: A segment that a Spark task wrote and version 0.1 added to the log.
_ADOPTED_NAME = re.compile(r"\d{20}a\.seg(\.pending)?")


def segment_name(base_index: int) -> str:
    """Return the file name of a segment; names sort like their first indices."""
    return f"{base_index:020d}.seg"


def base_of_name(name: str) -> int:
    """Return the first index in the name of a segment file."""
    return int(name[:20])


def is_segment_name(name: str) -> bool:
    return _SEGMENT_NAME.fullmatch(name) is not None


def new_spare_name() -> str:
    return f"{SPARE_PREFIX}{secrets.token_hex(8)}"


class LogDirectory:
    """The files of one log, by name."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk, self.path = disk, path

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def names(self) -> list[str]:
        return self.disk.names(self.path)

    def segment_names(self, suffix: str = "") -> list[str]:
        """Return the names of the segments in order, and those with this suffix after the name."""
        names = self.names()
        adopted = next(filter(_ADOPTED_NAME.fullmatch, names), None)
        if adopted is not None:
            raise LogFormatError(
                f"{self.path_of(adopted)} was written by a Spark task of Pillarbox 0.1, and this"
                " version does not read such segments; run `pip install pillarbox==0.1`, read the"
                " records with it and append them to a new log"
            )
        return sorted(name for name in names if is_segment_name(name.removesuffix(suffix)))

    def open(self, name: str, *, write: bool = False, create: bool = False) -> int:
        return self.disk.open(self.path_of(name), write=write, create=create)

    def opened(
        self, name: str, *, write: bool = False, create: bool = False
    ) -> AbstractContextManager[int]:
        """Open a file for the `with` block."""
        return opened(self.disk, self.path_of(name), write=write, create=create)

    def map(self, name: str) -> Mapping:
        with self.opened(name) as handle:
            return self.disk.map(handle, self.disk.size(handle))

    def rename(self, old: str, new: str) -> None:
        self.disk.rename(self.path_of(old), self.path_of(new))

    def unlink(self, name: str) -> None:
        self.disk.unlink(self.path_of(name))

    def sync(self) -> None:
        self.disk.sync_directory(self.path)

    def set_aside(self, source: str, name: str) -> str:
        """Link the file at the path `source` into `aside/`; returns its new name."""
        make_directory(self.disk, self.path_of(ASIDE))
        taken = set(self.disk.names(self.path_of(ASIDE)))
        numbered = (f"{name}.damaged-{number}" for number in itertools.count(1))
        kept = f"{ASIDE}/{next(new for new in numbered if new not in taken)}"
        self.disk.link(source, self.path_of(kept))
        self.disk.sync_directory(self.path_of(ASIDE))
        return kept

    def lock(self) -> int:
        """Lock the log for writing; `LogLockedError` names the process that has the lock.

        A forked child gives up its copy at once, so it can't keep the log locked after its parent.
        """
        disk, path = self.disk, self.path_of(LOCK_FILE)
        handle = disk.open(path, write=True, create=True)
        if not disk.lock(handle, exclusive=True):
            disk.close(handle)
            text = read_file(disk, path).strip()
            raise LogLockedError(self.path, int(text) if text.isdigit() else None)
        try:
            disk.truncate(handle, 0)
            write_all(disk, handle, [str(os.getpid()).encode()], 0)
        except OSError:
            # The pid is only informative; a full disk must not keep the log from opening.
            _logger.debug("could not write the pid to %s", path)
        return handle
