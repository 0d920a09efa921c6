"""The log: append-only, addressed by index, with a choice of durability.

`Log.open(path)` is the one writer; with `readonly=True` it returns a `LogReader`, of which there
may be any number, in any process. `append` returns when the record is confirmed; `submit` returns
a ticket at once. All methods are thread-safe.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Literal, overload

from pillarbox.closing import Closing
from pillarbox.log.confirmed import ConfirmedIndex
from pillarbox.log.directory import LogDirectory
from pillarbox.log.disk import Disk, RealDisk, make_directory, sync
from pillarbox.log.errors import LogError, LogPoisonedError
from pillarbox.log.frame import EncodedRecords
from pillarbox.log.group_commit import CONFIRMED, Ticket
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.log_reader import LogReader
from pillarbox.log.open_segments import OpenSegments
from pillarbox.log.readable_log import ReadableLog
from pillarbox.log.recovery import Check, Recovery, recover
from pillarbox.log.segments import Catalog, Retention, first_to_keep
from pillarbox.log.writer import FSYNC, MEMORY, OS, Writer
from pillarbox.mutex import Mutex

_logger = logging.getLogger("pillarbox.log")

Durability = Literal["fsync", "os", "memory"]
SEGMENT_BYTES = 64 << 20
SEGMENT_BYTES_MIN = 2 * BLOCK_BYTES


class Log(ReadableLog, Closing):
    """A log open for writing. Use `Log.open`."""

    _foreign = False  # whether this is a copy in a forked child

    def __init__(
        self,
        directory: LogDirectory,
        lock_handle: int,
        recovered: Recovery,
        *,
        durability: Durability,
        segment_bytes: int,
        retention: Retention,
        prepare_ahead: bool,
    ) -> None:
        catalog = Catalog(recovered.segments)
        super().__init__(directory, catalog)
        self.durability = durability
        self.recovery = recovered
        self.retention = retention
        self._lock_handle = lock_handle
        self._drop_lock = Mutex()
        self._closed = False
        self._confirmed = ConfirmedIndex(directory, self.watchers, write=True)
        self._new_id = secrets.token_bytes(16)
        writer = self._writer = Writer(
            directory,
            catalog,
            self.log_id,
            segment_bytes,
            durability=durability,
            prepare_ahead=prepare_ahead,
            confirmed=self._confirmed.set,
            rolled=self._on_rolled,
        )
        self._confirmed.set(writer.end_index)
        self.space: OpenSegments = writer
        # The hot path: writes (or buffers) one record now and returns its index, or None if another
        # thread writes; then submit it. If the log `syncs`, call `sync` next: it confirms the
        # record, and other writers wait until then.
        self.write_now: Callable[[bytes], int | None]
        self.write_now = writer.write_one_now if durability != MEMORY else writer.buffer_one
        self.sync, self.syncs = writer.sync, writer.syncs
        self.halt, self.abandon = writer.halt, writer.commit.abandon
        _open_logs.add(self)

    @overload
    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        durability: Durability = ...,
        disk: Disk | None = ...,
        segment_bytes: int = ...,
        retention: Retention | None = ...,
        readonly: Literal[False] = ...,
        check: Check = ...,
        prepare_ahead: bool = ...,
        progress: Callable[[int, int], None] | None = ...,
    ) -> Log: ...

    @overload
    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, readonly: Literal[True], disk: Disk | None = ...
    ) -> LogReader: ...

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        disk: Disk | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        retention: Retention | None = None,
        readonly: bool = False,
        check: Check = "tail",
        prepare_ahead: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> Log | LogReader:
        """Open the log in directory `path`, create it if it does not exist, recover its end.

        By default the last segment is read and checked. `check="all"` checks every segment;
        `"footer"` checks none if the log was closed cleanly, which is the fastest.
        """
        used = disk if disk is not None else RealDisk()
        if readonly:
            return LogReader(os.fspath(path), used)
        if durability not in (FSYNC, OS, MEMORY):
            raise LogError(f"durability must be 'fsync', 'os' or 'memory'; got {durability!r}")
        if segment_bytes < SEGMENT_BYTES_MIN:
            raise LogError(f"segment_bytes must be {SEGMENT_BYTES_MIN} or more")
        directory = LogDirectory(used, os.fspath(path))
        make_directory(used, directory.path)
        handle = directory.lock()
        try:
            return cls(
                directory,
                handle,
                recover(directory, check, progress),
                durability=durability,
                segment_bytes=segment_bytes,
                retention=retention or Retention(),
                prepare_ahead=prepare_ahead,
            )
        except BaseException:
            used.close(handle)
            raise

    def close(self) -> None:
        """Write and sync what was submitted, seal the log, and release its lock."""
        if self._foreign:
            return
        with self._drop_lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._writer.close()
        finally:
            self.watchers.notify()
            self._confirmed.close()
            self._reader.close()
            self._directory.disk.close(self._lock_handle)

    def leave_to_parent(self) -> None:
        """In a forked child: disable this copy, as the log belongs to the parent."""
        self._foreign = True
        self._writer.lock = threading.RLock()  # a thread of the parent may hold it
        self._writer.stopped = LogError(
            f"the log {self.path} belongs to the process that forked this one, and only that"
            " process may write to it"
        )

    def append(self, record: bytes) -> int:
        """Append one record; returns its index when it is confirmed."""
        return self.append_many((record,))

    def append_many(self, records: Sequence[bytes]) -> int:
        """Append all or none of the records; returns the first index when they are confirmed."""
        if not records:
            return self._writer.next_index
        if self.durability != MEMORY:
            return self._writer.append(records)
        return self._writer.submit(records, lazy=False, urgent=False).first_index

    def submit(
        self, records: Sequence[bytes], *, lazy: bool = False, urgent: bool = False, leave: int = 0
    ) -> Ticket:
        """Assign indices to the records now; the returned ticket resolves when confirmed.

        After a crash all of the records are there, or none. `lazy` records are written with
        the next group, or soon. `urgent` ones may use the space that is reserved for a full
        disk (`space.reserve`), except for its last `leave` bytes.
        """
        if not records:
            raise LogError("nothing to submit: give at least one record")
        if self.durability == OS:  # no sync to share with other writers
            first_index = self._writer.append(records, urgent=urgent, leave=leave)
            return Ticket(self._writer.commit, CONFIRMED, first_index, len(records))
        return self._writer.submit(records, lazy=lazy, urgent=urgent, leave=leave)

    def newest(self) -> Ticket:
        """Return a ticket for everything submitted so far."""
        writer = self._writer
        return Ticket(writer.commit, writer.commit.newest(), writer.next_index, 0)

    def flush(self) -> None:
        """Wait until everything submitted so far is confirmed (at level memory: written)."""
        self._writer.commit.drain()
        if self._writer.poisoned is not None:
            raise self._writer.poisoned

    def make_durable(self) -> None:
        """Sync everything written so far, at any level."""
        self.flush()
        if self.syncs:
            return
        first = self._catalog.of_index(self._writer.synced_index)
        for segment in self._catalog.segments:
            if first is None or segment.base_index >= first.base_index:
                with (
                    contextlib.suppress(FileNotFoundError),  # dropped by retention
                    self._directory.opened(segment.name) as handle,
                ):
                    sync(self._directory.disk, handle)

    @property
    def end_index(self) -> int:
        return self._writer.end_index

    @property
    def next_index(self) -> int:
        """The index of the next record to be submitted."""
        return self._writer.next_index

    @property
    def last_time_ns(self) -> int:
        """The time of the newest frame; later frames are never older."""
        return self._writer.last_time_ns

    @property
    def halted(self) -> LogError | None:
        """Why the log accepts no more records; None if it does."""
        return self._writer.stopped

    @property
    def poisoned(self) -> LogPoisonedError | None:
        """The error of a failed write or sync, after which nothing can be written."""
        return self._writer.poisoned

    @property
    def size_bytes(self) -> int:
        """Bytes of records on disk."""
        return self._sealed_bytes + self._writer.live_bytes

    @property
    def disk_bytes(self) -> int:
        """Bytes of all segments, including space allocated for future records."""
        return self._sealed_bytes + self._writer.reserved_bytes

    @property
    def _sealed_bytes(self) -> int:
        return sum(each.size_bytes for each in self._catalog.segments if each.sealed)

    def truncate_before(self, index: int) -> int:
        """Drop sealed segments before `index` that nothing pins; returns the new first index."""
        with self._drop_lock:
            limit = min([index, *self.pins().values()])
            while self._catalog.segments:
                oldest = self._catalog.segments[0]
                last = oldest is self._catalog.last
                if not oldest.sealed or last or oldest.end_index > limit:
                    break
                self._catalog.drop(oldest)
                self._reader.forget(oldest)
                self._writer.spares.drop(oldest.name, recyclable=not self._writer.full)
        return self.first_index

    def sealed_segments(self) -> list[tuple[int, int]]:
        """(end index, bytes) of each sealed segment, oldest first."""
        sealed = [segment for segment in self._catalog.segments if segment.sealed]
        return [(segment.end_index, segment.size_bytes) for segment in sealed]

    def first_to_keep(self, retention: Retention, now_ns: int) -> int:
        """Return the first index that this retention keeps."""
        return first_to_keep(self._catalog.segments, retention, now_ns)

    def apply_retention(self, now_ns: int | None = None) -> int:
        """Drop what the retention no longer keeps; returns the new first index."""
        now = time.time_ns() if now_ns is None else now_ns
        return self.truncate_before(first_to_keep(self._catalog.segments, self.retention, now))

    def _on_rolled(self) -> None:
        if self.retention != Retention():
            self._writer.spares.later(self._retain_quietly)

    def _retain_quietly(self) -> None:
        try:
            self.apply_retention()
        except (OSError, LogError):
            _logger.exception("could not apply the retention of %s", self.path)

    def append_committed(self, records: Sequence[bytes] | EncodedRecords, meta: bytes) -> int:
        """Append records and metadata in one frame, always synced; returns the first index.

        `commits()` returns the metadata. There may be no records.
        """
        return self._writer.append_committed(records, meta)


_open_logs: weakref.WeakSet[Log] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_open_logs):
        log.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
