"""Room that is kept for urgent records: files with real blocks, turned into segments at need.

Free space that is only counted can be taken by another program at any time; a file can't. The
owner of a log says how much to hold. Called with the writer's lock held.
"""

from __future__ import annotations

import contextlib
import secrets

from pillarbox.log.disk import Disk, has_no_space
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.segment import zero_fill

RESERVE_PREFIX = "reserve-"
FILE_BYTES_MIN = 64 << 10
FILE_BYTES_MAX = 16 << 20


class Reserve:
    """The reserve files of one log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk, self._directory = disk, directory
        self._files: dict[str, int] = {}
        for name in disk.names(directory):
            if name.startswith(RESERVE_PREFIX):
                self._files[name] = self._size(name)
        self.held = sum(self._files.values())
        self.wanted = 0

    def fill(self) -> None:
        """Hold what is wanted; raises OSError if the disk has no room for it."""
        while self.held < self.wanted:
            # Larger files for a larger reserve: few enough, and each is soon used up.
            self._add(min(FILE_BYTES_MAX, max(FILE_BYTES_MIN, self.held // 8)))

    def shrink(self) -> None:
        """Give back what is far more than what is wanted."""
        for name, size in sorted(self._files.items(), key=lambda each: -each[1]):
            if self.held - size >= 2 * self.wanted:
                self._remove(name)

    def give_up(self, size_bytes: int, leave: int) -> bool:
        """Remove files of so many bytes together, unless fewer than `leave` were left."""
        chosen, total = [], 0
        for name, size in sorted(self._files.items(), key=lambda each: each[1]):
            if total < size_bytes:
                chosen.append(name)
                total += size
        if total < size_bytes or self.held - total < leave:
            return False
        for name in chosen:
            self._remove(name)
        return True

    def _remove(self, name: str) -> None:
        self.forget(name)
        self._disk.unlink(f"{self._directory}/{name}")

    def find(self, size_bytes: int) -> tuple[str, int] | None:
        """The smallest file (name, bytes) that is large enough."""
        large = [(size, name) for name, size in self._files.items() if size >= size_bytes]
        return min(large)[::-1] if large else None

    def forget(self, name: str) -> None:
        """It is used for something else from now on."""
        self.held -= self._files.pop(name)

    def _add(self, size_bytes: int) -> None:
        name = f"{RESERVE_PREFIX}{secrets.token_hex(8)}"
        path = f"{self._directory}/{name}"
        handle = self._disk.open(path, write=True, create=True)
        try:
            self._disk.allocate(handle, 0, size_bytes)
            if self._disk.size(handle) < size_bytes:  # a system that can't allocate
                zero_fill(self._disk, handle, 0, size_bytes)
        except OSError as error:
            if has_no_space(error):
                with contextlib.suppress(OSError):
                    self._disk.unlink(path)
            raise
        finally:
            self._disk.close(handle)
        self._files[name] = size_bytes
        self.held += size_bytes

    def _size(self, name: str) -> int:
        handle = self._disk.open(f"{self._directory}/{name}")
        try:
            return self._disk.size(handle) // BLOCK_BYTES * BLOCK_BYTES
        finally:
            self._disk.close(handle)
