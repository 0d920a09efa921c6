"""Spare segment files, zeroed in the background or recycled from dropped segments.

A spare file may contain old frames: a segment made from it gets a new random epoch, under which
their checksums fail. A file is recycled only if nobody else has it open, because a reader may
still map it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from pillarbox.log.directory import SPARE_PREFIX, LogDirectory, new_spare_name
from pillarbox.log.disk import sync, write_all
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.segment_writer import SegmentWriter, zero_fill
from pillarbox.mutex import Mutex

SPARES_MAX = 2


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
