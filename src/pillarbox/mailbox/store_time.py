"""The file that saves a store's clock, so that it continues when the store is opened again.

It is small, replaced atomically, and written when the machine was restarted or its system time
was set. Stores created before this file existed have none.
"""

from __future__ import annotations

import msgspec

from pillarbox.clock import Anchor, WallClock
from pillarbox.log import Disk
from pillarbox.log.disk import read_file, replace_file
from pillarbox.logger import logger

TIME_FILE = "time.json"


def read_anchor(disk: Disk, path: str) -> Anchor | None:
    """Return the saved time of the store at `path`; None if missing or unreadable."""
    try:
        return msgspec.json.decode(read_file(disk, f"{path}/{TIME_FILE}"), type=Anchor)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        logger.error("the saved time of the store is damaged", store=path, error=str(error))
        return None


def note_anchor(disk: Disk, path: str, anchor: Anchor) -> bool:
    """Save the time; return False if that failed, for example on a full disk."""
    try:
        replace_file(disk, path, TIME_FILE, msgspec.json.encode(anchor))
    except OSError as error:
        logger.warning("could not save the time of the store", store=path, error=str(error))
        return False
    return True


def store_time(disk: Disk, path: str, latest_ns: int) -> int:
    """Return the current time of the store at `path`, for read-only tools."""
    clock = WallClock()
    clock.go_on_from(latest_ns, read_anchor(disk, path))
    return clock.now()


class Timekeeper:
    """Saves a store's time when necessary."""

    def __init__(self, disk: Disk, path: str, clock: WallClock) -> None:
        self._disk, self._path, self._clock = disk, path, clock
        self._noted = read_anchor(disk, path)

    def go_on(self, latest_ns: int, latest_wall_ns: int) -> None:
        """On open, continue from the saved time or, in an old store, from the latest known time."""
        latest = latest_ns if self._noted is not None else max(latest_ns, latest_wall_ns)
        self._clock.go_on_from(latest, self._noted)
        self.note()

    def note(self) -> None:
        """Save the time if the system clock was changed."""
        anchor = self._clock.anchor()
        if anchor != self._noted and note_anchor(self._disk, self._path, anchor):
            self._noted = anchor
