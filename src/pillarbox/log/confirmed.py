"""The shared memory from which readers in other processes learn what is confirmed.

16 bytes in the log's directory: the index after the last confirmed record, and its complement.
Never synced: if the writer has died, readers check the frames themselves.
"""

from __future__ import annotations

import struct
import threading
from contextlib import suppress

from pillarbox.closing import Closing
from pillarbox.log.directory import LogDirectory
from pillarbox.log.disk import SharedWord, has_no_space

FILE = "confirmed"
_WORD = struct.Struct("<QQ")
_MASK = (1 << 64) - 1


class Watchers:
    """Threads that wait for a log to grow."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # for signal handlers
        self.parked: list[threading.Event] = []

    def add(self, event: threading.Event) -> None:
        with self._lock:
            self.parked = [*self.parked, event]

    def remove(self, event: threading.Event) -> None:
        with self._lock:
            self.parked = [each for each in self.parked if each is not event]

    def notify(self) -> None:
        for event in self.parked:
            event.set()


class ConfirmedIndex(Closing):
    """The index in shared memory, and the watchers in this process."""

    def __init__(
        self, directory: LogDirectory, watchers: Watchers | None = None, *, write: bool = False
    ) -> None:
        self._disk, self._path = directory.disk, directory.path_of(FILE)
        self._watchers = watchers or Watchers()
        self._shared_word: SharedWord | None = None
        if write:
            try:
                self._shared_word = self._disk.shared_word(self._path, write=True)
            except OSError as error:  # a full disk: readers use the frames
                if not has_no_space(error):
                    raise

    def set(self, index: int) -> None:
        if self._shared_word is not None:
            self._shared_word.set(_WORD.pack(index, index ^ _MASK))
        if self._watchers.parked:
            self._watchers.notify()

    def get(self) -> int | None:
        """Return the confirmed index; None if it was never set, or is being set now."""
        if self._shared_word is None:
            with suppress(FileNotFoundError):
                self._shared_word = self._disk.shared_word(self._path, write=False)
        if self._shared_word is None:
            return None
        index, complement = _WORD.unpack(self._shared_word.get())
        return int(index) if index ^ complement == _MASK else None

    def close(self) -> None:
        if self._shared_word is not None:
            self._shared_word.close()


def confirmed_by_last_writer(directory: LogDirectory) -> int:
    """Return the index after the last record that a writer confirmed; 0 if unknown."""
    with ConfirmedIndex(directory) as confirmed:
        return confirmed.get() or 0
