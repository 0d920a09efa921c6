"""Allocated files that become segments: spare ones, and the reserve for urgent records.

A spare file is zeroed in the background or recycled from a dropped segment, and may contain old
frames: a segment made from it gets a new random epoch, under which their checksums fail. A file is
recycled only if nobody else has it open, because a reader may still map it.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import deque
from collections.abc import Callable

from pillarbox.log.directory import RESERVE_PREFIX, SPARE_PREFIX, LogDirectory, new_spare_name
from pillarbox.log.disk import has_no_space, sync, write_all
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.segment_writer import SegmentWriter, zero_fill
from pillarbox.mutex import Mutex

SPARES_MAX = 2
FILE_BYTES_MIN = 64 << 10  # of the reserve
FILE_BYTES_MAX = 16 << 20


class SpareFiles:
    """The spare files of one log, and the threads that prepare them."""

    def __init__(self, directory: LogDirectory, segment_bytes: int, *, prepare_ahead: bool) -> None:
        self._disk, self._directory = directory.disk, directory
        self._segment_bytes = segment_bytes
        self._prepare_ahead = prepare_ahead
        self._lock = Mutex()
        self._threads: list[threading.Thread] = []
        self._preparing = False
        self._sync_lock = Mutex()
        self._unsynced: deque[SegmentWriter] = deque()
        self._names = [n for n in directory.names() if n.startswith(SPARE_PREFIX)]

    def take(self) -> str | None:
        """Take a spare file; None if there is none. Waits for one that is being prepared."""
        if self._preparing:
            self._join()
        with self._lock:
            return self._names.pop(0) if self._names else None

    def put_back(self, name: str | None) -> None:
        if name is not None:
            with self._lock:
                self._names.append(name)

    def prepare(self) -> None:
        """Prepare a spare file in the background, before the current segment is full."""
        with self._lock:
            if not self._prepare_ahead or self._names or self._preparing:
                return
            self._preparing = True
        self._start(self._prepare)

    def _prepare(self) -> None:
        name = new_spare_name()
        try:
            with self._directory.opened(name, write=True, create=True) as handle:
                zero_fill(self._disk, handle, 0, self._segment_bytes)
                sync(self._disk, handle)
            with self._lock:
                self._names.append(name)
        except OSError:
            # Not fatal: the segment is created when needed, and reports the error then.
            with contextlib.suppress(OSError):
                self._directory.unlink(name)
        finally:
            self._preparing = False

    def sync_later(
        self, writer: SegmentWriter, done: Callable[[SegmentWriter, OSError | None], None]
    ) -> None:
        """Sync and close a sealed segment in the background."""
        self._unsynced.append(writer)

        def work() -> None:
            with self._sync_lock:  # oldest first: a sync confirms everything before it
                while self._unsynced:
                    oldest = self._unsynced.popleft()
                    done(oldest, _sync_and_close(oldest))

        self.later(work)

    def later(self, work: Callable[[], None]) -> None:
        """Run work in the background."""
        if self._prepare_ahead:
            self._start(work)
        else:
            work()

    def drop(self, name: str, *, recyclable: bool) -> None:
        """Recycle a dropped segment file if it has no readers; else delete it."""
        if not recyclable or len(self._names) >= SPARES_MAX or not self._recycle(name):
            self._directory.unlink(name)
            self._directory.sync()

    def drop_all(self) -> bool:
        """Delete all spare files; returns whether there were any."""
        self._join()
        with self._lock:
            names, self._names = self._names, []
        for name in names:
            self._directory.unlink(name)
        return bool(names)

    def _recycle(self, name: str) -> bool:
        """Turn a file into a spare; False if someone has it open."""
        with self._directory.opened(name, write=True) as handle:
            if not self._disk.lock(handle, exclusive=True):
                return False
            spare = new_spare_name()
            self._directory.rename(name, spare)
            self._directory.sync()
            # Under the lock, so that a reader that just opened the file finds no header.
            write_all(self._disk, handle, [bytes(BLOCK_BYTES)], 0)
        self.put_back(spare)
        return True

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="pillarbox-log-files", daemon=True)
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _join(self) -> None:
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()


def _sync_and_close(writer: SegmentWriter) -> OSError | None:
    try:
        writer.sync()
        writer.close()
    except OSError as error:
        return error
    return None


class Reserve:
    """The disk space that one log reserves for urgent records; its owner decides how much.

    Free space could be taken by another program at any time, an allocated file can't. Call
    everything with the writer's lock held.
    """

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
                self._cut(name, (size - size_bytes) // BLOCK_BYTES * BLOCK_BYTES)
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
