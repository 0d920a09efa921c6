"""The file in which a store notes its time, so that it goes on from there when it is opened.

It is small, replaced as a whole, and written when something has changed: the machine was
started anew, or its time of day was set. Stores that are older than the file have none.
"""

from __future__ import annotations

import msgspec

from pillarbox.clock import Anchor, WallClock
from pillarbox.log import Disk
from pillarbox.log.disk import read_file, replace_file
from pillarbox.logger import logger

TIME_FILE = "time.json"


def read_anchor(disk: Disk, path: str) -> Anchor | None:
    """What was noted in the store at `path`; None if nothing was that can be read."""
    try:
        return msgspec.json.decode(read_file(disk, f"{path}/{TIME_FILE}"), type=Anchor)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        logger.error("the time of the store is damaged", store=path, error=str(error))
        return None


def note_anchor(disk: Disk, path: str, anchor: Anchor) -> bool:
    """Note it; False if that failed, because the disk is full or worse: what was noted stays."""
    try:
        replace_file(disk, path, TIME_FILE, msgspec.json.encode(anchor))
    except OSError as error:
        logger.warning("the time of the store could not be noted", store=path, error=str(error))
        return False
    return True


def store_time(disk: Disk, path: str, latest_ns: int) -> int:
    """What time it is in the store at `path`, for those who only look."""
    clock = WallClock()
    clock.go_on_from(latest_ns, read_anchor(disk, path))
    return clock.now()


class Timekeeper:
    """Notes a store's time whenever it has to be noted."""

    def __init__(self, disk: Disk, path: str, clock: WallClock) -> None:
        self._disk, self._path, self._clock = disk, path, clock
        self._noted = read_anchor(disk, path)

    def go_on(self, latest_ns: int, latest_wall_ns: int) -> None:
        """Opening: go on from what was noted, or (an old store) from the latest time known."""
        latest = latest_ns if self._noted is not None else max(latest_ns, latest_wall_ns)
        self._clock.go_on_from(latest, self._noted)
        self.note()

    def note(self) -> None:
        """Note what has changed, if anything has."""
        anchor = self._clock.anchor()
        if anchor != self._noted and note_anchor(self._disk, self._path, anchor):
            self._noted = anchor
