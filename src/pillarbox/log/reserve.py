"""Disk space reserved for urgent records: allocated files that become segments when needed.

Free space could be taken by another program at any time, an allocated file can't. The owner of
the log decides how much to reserve. Call everything with the writer's lock held.
"""

from __future__ import annotations

import contextlib
import secrets

from pillarbox.log.disk import Disk, has_no_space, opened
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
        """Allocate what is wanted; raises OSError if the disk is full."""
        while self.held < self.wanted:
            # Larger files for a larger reserve, to keep their number small.
            self._add(min(FILE_BYTES_MAX, max(FILE_BYTES_MIN, self.held // 4)))

    def shrink(self) -> None:
        """Delete files while there is at least twice what is wanted."""
        for name, size in sorted(self._files.items(), key=lambda each: -each[1]):
            if self.held - size >= 2 * self.wanted:
                self._remove(name)

    def release(self, size_bytes: int, leave: int) -> bool:
        """Delete files of `size_bytes` in total, if at least `leave` bytes remain."""
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
        """The largest file (name, bytes), if it is large enough."""
        name, size = max(self._files.items(), key=lambda each: each[1], default=("", -1))
        return (name, size) if size >= size_bytes else None

    def forget(self, name: str) -> None:
        """The file is used for something else now."""
        self.held -= self._files.pop(name)

    def _add(self, size_bytes: int) -> None:
        name = f"{RESERVE_PREFIX}{secrets.token_hex(8)}"
        path = f"{self._directory}/{name}"
        handle = self._disk.open(path, write=True, create=True)
        try:
            self._disk.allocate(handle, 0, size_bytes)
            if self._disk.size(handle) < size_bytes:  # no posix_fallocate here
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
        with opened(self._disk, f"{self._directory}/{name}") as handle:
            return self._disk.size(handle) // BLOCK_BYTES * BLOCK_BYTES
