"""Disk space reserved for urgent records: allocated files that become segments when needed.

Free space could be taken by another program at any time, an allocated file can't. The owner of
the log decides how much to reserve. Call everything with the writer's lock held.
"""

from __future__ import annotations

import contextlib
import secrets

from pillarbox.log.directory import RESERVE_PREFIX, LogDirectory
from pillarbox.log.disk import has_no_space
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.segment_writer import zero_fill

FILE_BYTES_MIN = 64 << 10
FILE_BYTES_MAX = 16 << 20


class Reserve:
    """The reserve files of one log."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        names = [name for name in directory.names() if name.startswith(RESERVE_PREFIX)]
        self._files = {name: self._size(name) for name in names}
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

    def release(self, size_bytes: int) -> bool:
        """Free `size_bytes` of the reserve, if it is large enough."""
        if size_bytes > self.held:
            return False
        for name, size in sorted(self._files.items(), key=lambda each: each[1]):
            if size <= size_bytes:
                self._remove(name)
            elif size_bytes > 0:
                self._cut(name, max(0, size - size_bytes) // BLOCK_BYTES * BLOCK_BYTES)
            size_bytes -= size
        return True

    def _cut(self, name: str, size_bytes: int) -> None:
        """Make a file smaller."""
        with self._directory.opened(name, write=True) as handle:
            self._directory.disk.truncate(handle, size_bytes)
        self.held += size_bytes - self._files[name]
        self._files[name] = size_bytes

    def _remove(self, name: str) -> None:
        self.forget(name)
        self._directory.unlink(name)

    def find(self, size_bytes: int) -> tuple[str, int] | None:
        """Return the largest file (name, bytes), if it is large enough."""
        name, size = max(self._files.items(), key=lambda each: each[1], default=("", -1))
        return (name, size) if size >= size_bytes else None

    def forget(self, name: str) -> None:
        """Remove a file that is now used for something else."""
        self.held -= self._files.pop(name)

    def _add(self, size_bytes: int) -> None:
        disk, name = self._directory.disk, f"{RESERVE_PREFIX}{secrets.token_hex(8)}"
        try:
            with self._directory.opened(name, write=True, create=True) as handle:
                disk.allocate(handle, 0, size_bytes)
                if disk.size(handle) < size_bytes:  # no posix_fallocate here
                    zero_fill(disk, handle, 0, size_bytes)
        except OSError as error:
            if has_no_space(error):
                with contextlib.suppress(OSError):
                    self._directory.unlink(name)
            raise
        self._files[name] = size_bytes
        self.held += size_bytes

    def _size(self, name: str) -> int:
        with self._directory.opened(name) as handle:
            return self._directory.disk.size(handle) // BLOCK_BYTES * BLOCK_BYTES
