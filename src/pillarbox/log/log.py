"""The log: append-only, addressed by index, confirmed as durable as you ask.

`Log.open(path)` is the one writer; `readonly=True` gives a `LogReader` that may live in any
number of other processes. `append` returns when the record is confirmed; `submit` returns at
once with a ticket. All methods are safe from many threads.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import time
import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Literal, overload

from pillarbox.closing import Closing
from pillarbox.log.adopt import adopt, append_committed, check_staged
from pillarbox.log.catalog import Catalog, Segment
from pillarbox.log.commit import Ticket, confirmed_ticket
from pillarbox.log.confirmed import ConfirmedWriter
from pillarbox.log.disk import Disk, RealDisk, make_directory, sync
from pillarbox.log.errors import LogError, LogIndexError, LogPoisonedError
from pillarbox.log.follower import LogReader
from pillarbox.log.headroom import Headroom
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.locking import take_lock
from pillarbox.log.readable import ReadableLog
from pillarbox.log.recovery import Recovery, recover
from pillarbox.log.retention import Retention, first_to_keep
from pillarbox.log.writer import FSYNC, MEMORY, OS, Writer
from pillarbox.mutex import Mutex

_logger = logging.getLogger("pillarbox.log")

Durability = Literal["fsync", "os", "memory"]
SEGMENT_BYTES = 64 << 20
SEGMENT_BYTES_MIN = 2 * BLOCK_BYTES


class Log(ReadableLog, Closing):
    """A log open for writing. Use `Log.open`."""

    _foreign = False  # whether it belongs to the process that this one was forked from

    def __init__(
        self,
        path: str,
        disk: Disk,
        lock_handle: int,
        recovered: Recovery,
        *,
        durability: Durability,
        segment_bytes: int,
        retention: Retention,
        prepare_ahead: bool,
    ) -> None:
        catalog = Catalog(recovered.segments)
        super().__init__(disk, path, catalog, indexing=False)
        self.durability = durability
        self.recovery = recovered
        self.retention = retention
        self._lock_handle = lock_handle
        self._drop_lock = Mutex()
        self._closed = False
        self._word = ConfirmedWriter(disk, path)
        self._new_id = secrets.token_bytes(16)
        self._writer = Writer(
            disk,
            path,
            catalog,
            recovered,
            log_id=self.log_id,
            durability=durability,
            segment_bytes=segment_bytes,
            prepare_ahead=prepare_ahead,
            confirmed=self._on_confirmed,
            rolled=self._on_rolled,
        )
        self.room = Headroom(self._writer)
        self._word.set(self._writer.end_index)
        self.syncs = self._writer.syncs
        # For the hot path: write one record now, if nobody else writes, and give its index;
        # else None, and it has to be submitted. Where the log `syncs`, `sync` must follow: it
        # confirms the record, and others wait till then. At level memory all are submitted.
        self.lead: Callable[[bytes], int | None]
        self.lead = self._writer.lead_one if durability != MEMORY else _never
        self.sync = self._writer.sync
        _open_logs.add(self)
        self.halt = self._writer.halt
        self.abandon = self._writer.commit.abandon

    # -- opening and closing ---------------------------------------------------------------

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
        check: Literal["footer", "tail", "all"] = ...,
        prepare_ahead: bool = ...,
        progress: Callable[[int, int], None] | None = ...,
    ) -> Log: ...

    @overload
    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        readonly: Literal[True],
        disk: Disk | None = ...,
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
        check: Literal["footer", "tail", "all"] = "tail",
        prepare_ahead: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> Log | LogReader:
        """Open the log in directory `path`, making it if need be, and recover its end.

        `check="all"` reads and checks every segment, not only the last; `"footer"` not even that
        one, if the log was closed: for those who open it often.
        """
        directory = os.fspath(path)
        used = disk if disk is not None else RealDisk()
        if readonly:
            return LogReader(directory, used)
        if durability not in (FSYNC, OS, MEMORY):
            raise LogError(f"durability must be 'fsync', 'os' or 'memory'; got {durability!r}")
        if segment_bytes < SEGMENT_BYTES_MIN:
            raise LogError(f"segment_bytes must be {SEGMENT_BYTES_MIN} or more")
        make_directory(used, directory)
        handle = take_lock(used, directory)
        try:
            recovered = recover(
                used,
                directory,
                check_all=check == "all",
                trust_footer=check == "footer",
                progress=progress,
            )
            return cls(
                directory,
                used,
                handle,
                recovered,
                durability=durability,
                segment_bytes=segment_bytes,
                retention=retention or Retention(),
                prepare_ahead=prepare_ahead,
            )
        except BaseException:
            used.close(handle)
            raise

    def close(self) -> None:
        """Write and sync what was submitted, seal the log, and let go of it."""
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
            self._word.close()
            self._reader.close()
            self._disk.close(self._lock_handle)

    def leave_to_parent(self) -> None:
        """In a forked child: the log goes on in the parent, and nothing here may touch it."""
        self._foreign = True
        self._writer.lock = Mutex()  # another thread may have held it
        self._writer.stopped = LogError(
            f"the log {self.path} belongs to the process that this one was forked from; only that"
            " one may write to it"
        )

    # -- writing ---------------------------------------------------------------------------

    def append(self, record: bytes) -> int:
        """Append one record; its index, once it is confirmed."""
        return self.append_many((record,))

    def append_many(self, records: Sequence[bytes]) -> int:
        """Append all or none of the records; the first index, once all are confirmed."""
        if not records:
            return self._writer.next_index
        if self.durability != MEMORY:
            return self._writer.append(records)
        ticket = self._writer.submit(records, lazy=False, urgent=False)
        self._buffered(ticket)
        return ticket.first_index

    def submit(
        self,
        records: Sequence[bytes],
        *,
        lazy: bool = False,
        urgent: bool = False,
        leave: int = 0,
    ) -> Ticket:
        """Give the records their indices now; the ticket tells when they are confirmed.

        They stay together: after a crash all of them are there, or none. `lazy` records go
        with the next group, or soon; nobody has to wait. `urgent` ones may use the room that
        is held back for a full disk (`room.hold_back`), but for the last `leave` bytes of it.
        """
        if not records:
            raise LogError("there is nothing to submit; give at least one record")
        if self.durability == OS:  # no sync to share: a write is all there is to it
            first_index = self._writer.append(records, urgent=urgent, leave=leave)
            return confirmed_ticket(self._writer.commit, first_index, len(records))
        ticket = self._writer.submit(records, lazy=lazy, urgent=urgent, leave=leave)
        if self.durability == MEMORY:
            self._buffered(ticket)
            return ticket.already_confirmed()
        return ticket

    def newest(self) -> Ticket:
        """A promise for everything that was submitted so far."""
        writer = self._writer
        return Ticket(writer.commit, writer.commit.newest(), writer.next_index, 0)

    def _buffered(self, ticket: Ticket) -> None:
        self._writer.commit.buffered(ticket)

    def flush(self) -> None:
        """Wait until everything submitted so far is confirmed (level memory: written)."""
        self._writer.commit.drain()
        if self._writer.poisoned is not None:
            raise self._writer.poisoned

    def make_durable(self) -> None:
        """Have everything that is written so far on disk, whatever the level."""
        self.flush()
        if self.syncs:
            return
        first = self._catalog.of_index(self._writer.synced_index)
        for segment in self._catalog.segments:
            if first is None or segment.base_index >= first.base_index:
                with contextlib.suppress(FileNotFoundError):  # retention has dropped it
                    handle = self._disk.open(f"{self.path}/{segment.name}")
                    try:
                        sync(self._disk, handle)
                    finally:
                        self._disk.close(handle)

    def _on_confirmed(self, index: int) -> None:
        self._word.set(index)
        if self.watchers.parked:
            self.watchers.notify()

    # -- state -----------------------------------------------------------------------------

    @property
    def end_index(self) -> int:
        return self._writer.end_index

    @property
    def next_index(self) -> int:
        """The index that the next submitted record gets."""
        return self._writer.next_index

    @property
    def last_time_ns(self) -> int:
        """The time of the newest frame; a clock that starts from it never goes back."""
        return self._writer.last_time_ns

    @property
    def halted(self) -> LogError | None:
        """Why it takes nothing more, if it does not."""
        return self._writer.stopped

    @property
    def leads(self) -> bool:
        """Whether this thread has to `sync` what it wrote by `lead`."""
        return self._writer.leads

    @property
    def busy_here(self) -> bool:
        """Whether this thread leads or waits, in a frame that a signal handler interrupted."""
        return self._writer.commit.is_busy_here()

    @property
    def poisoned(self) -> LogPoisonedError | None:
        """Why nothing can be written any more, if a sync has failed."""
        return self._writer.poisoned

    @property
    def size_bytes(self) -> int:
        """What the log's records take on disk."""
        return self._sealed_bytes + self._writer.live_bytes

    @property
    def disk_bytes(self) -> int:
        """What its segments take: with the room that is reserved for records to come."""
        return self._sealed_bytes + self._writer.reserved_bytes

    @property
    def _sealed_bytes(self) -> int:
        return sum(each.size_bytes for each in self._catalog.segments if each.sealed)

    # -- retention and adoption ------------------------------------------------------------

    def truncate_before(self, index: int) -> int:
        """Drop whole sealed segments below `index` that nothing pins; the new first index."""
        with self._drop_lock:
            limit = min([index, *self.pins().values()])
            while self._catalog.segments:
                oldest = self._catalog.segments[0]
                needed = self._last_with(oldest)
                if needed is self._catalog.segments[-1] or needed.end_index > limit:
                    break
                self._catalog.drop_first()
                self._reader.forget(oldest)
                recyclable = not (oldest.staged or self._writer.full)
                self._writer.spares.drop(oldest.name, recyclable=recyclable)
        return self.first_index

    def drop_spares(self) -> None:
        """Give the room of files that are kept for segments to come back to the disk."""
        self._writer.spares.drop_all()

    def _last_with(self, oldest: Segment) -> Segment:
        """A commit is dropped with all the segments that it names: it tells what they are."""
        following = self._catalog.segments[1:] if oldest.commit_offset else ()
        return [oldest, *itertools.takewhile(attrgetter("staged"), following)][-1]

    def sealed_segments(self) -> list[tuple[int, int]]:
        """(end index, bytes) of each segment that is full, oldest first."""
        sealed = [segment for segment in self._catalog.segments if segment.sealed]
        return [(segment.end_index, segment.size_bytes) for segment in sealed]

    def first_to_keep(self, retention: Retention, now_ns: int) -> int:
        """The index from which such a retention would keep the log."""
        return first_to_keep(self._catalog.segments, retention, now_ns)

    def apply_retention(self, now_ns: int | None = None) -> int:
        """Drop what the retention no longer keeps; the new first index."""
        now = time.time_ns() if now_ns is None else now_ns
        return self.truncate_before(first_to_keep(self._catalog.segments, self.retention, now))

    def _on_rolled(self) -> None:
        if self.retention != Retention():
            self._writer.spares.later(self._retain_quietly)

    def _retain_quietly(self) -> None:
        try:
            self.apply_retention()
        except (OSError, LogError):
            _logger.exception("the retention of %s could not be applied", self.path)

    def adopt(
        self, staged: Sequence[str | os.PathLike[str]], meta: bytes, *, verify: bool = True
    ) -> int:
        """Make staged segment files part of the log, all or none, with one commit frame.

        The files must lie on the log's own file system; they are linked, not copied. Returns
        the index of their first record. `commits()` gives the metadata back. Without `verify`
        only headers and footers are read: for files that were sealed under the caller's eyes.
        """
        paths = [os.fspath(path) for path in staged]
        checked = [check_staged(self._disk, path, verify=verify) for path in paths]
        return adopt(self._writer, paths, meta, checked)

    def append_committed(self, records: Sequence[bytes], meta: bytes) -> int:
        """Append records with a commit, all or none, in one frame; the first index.

        For what is too little to be worth segments of its own. Always synced.
        """
        return append_committed(self._writer, records, meta)

    def get(self, index: int, *, wait: bool = True) -> bytes:
        """The record at `index`. BlockingIOError if it is not in memory and it may not `wait`."""
        if index >= self.end_index and index < self.next_index:
            raise LogIndexError(self.path, index, self.first_index, self.end_index)
        return super().get(index, wait=wait)


def _never(record: bytes) -> None:
    """Nobody leads."""


_open_logs: weakref.WeakSet[Log] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_open_logs):
        log.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
