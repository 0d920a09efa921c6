"""A store on disk: the same queues as in memory, with every event logged before it is applied.

One log serves all queues of the store, so one sync confirms all of their writes. Bodies stay in
the log; a record holds the location. Opening replays the log from the last snapshot. If a write
fails, the queue is unchanged; if a sync fails, the store becomes read-only and reports it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NoReturn, TypeVar

import msgspec

from pillarbox.clock import Clock, WallClock
from pillarbox.core import journal
from pillarbox.core.errors import MailboxClosedError, MailboxError, MailboxFullError
from pillarbox.core.events import Event
from pillarbox.core.queue import NEVER, Queue, Record
from pillarbox.log import (
    Disk,
    Durability,
    Log,
    LogError,
    LogFullError,
    LogIndexError,
    RealDisk,
    RecordLostError,
    Retention,
    Ticket,
)
from pillarbox.log.disk import make_directory, remove_temporaries
from pillarbox.logger import logger
from pillarbox.mailbox.capture import Capture
from pillarbox.mailbox.compactor import Compactor
from pillarbox.mailbox.durable_session import (
    INDEX_SHIFT,
    RECENT_BYTES_MAX,
    DurableQueueSession,
    index_of,
    locations,
)
from pillarbox.mailbox.log_errors import as_mailbox_error, translated
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.queue_steps import QueueSteps, Written
from pillarbox.mailbox.replay import recover, refuse_foreign_settings
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.store_files import Timekeeper, read_store_settings, write_store_settings

R = TypeVar("R")


class DurableStore(Store):
    """All queues of one directory. Only one process at a time can have it open."""

    waits = True
    time: Timekeeper | None = None  # only with the system clock
    capture: Capture | None = None  # set while a snapshot is taken
    step_index: int | None = None  # first index of an entry that is written but not applied yet

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        segment_bytes: int | None = None,
        history: Retention | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.disk = disk if disk is not None else RealDisk()
        self._opened_by, self._foreign = os.getpid(), False
        self._recent: dict[int, bytes] = {}
        self._recent_bytes = 0
        # Entries to write before the next write, and whether they are needed: they record expired
        # leases and delays that a read-only call noticed. If the process ends first, whoever opens
        # the store next finds the same ones expired.
        self.deferred: list[tuple[Sequence[bytes], bool]] = []
        self.last_number = -1  # highest queue number, including deleted queues
        self.changed: set[QueueSteps] = set()  # queues that changed since the last count
        with translated(self.path):
            make_directory(self.disk, self.path)
            settings = read_store_settings(self.disk, self.path).but(segment_bytes, history)
            self.segment_bytes = settings.segment_bytes
            self.log = Log.open(
                f"{self.path}/log",
                durability=durability,
                disk=self.disk,
                segment_bytes=settings.segment_bytes,
            )
        try:
            super().__init__(clock or WallClock())
            with translated(self.path):
                refuse_foreign_settings(self, settings)
                remove_temporaries(self.disk, self.path)
                snapshot_index = recover(self)
                settings = msgspec.structs.replace(settings, log_id=self.log.log_id.hex())
                write_store_settings(self.disk, self.path, settings)
        except BaseException:
            self.log.close()
            raise
        self.syncs, self._lead = self.log.syncs, self.log.write_now
        self.writer = self.log._writer  # shortcuts for the hot path
        self.commit = self.writer.commit
        self.compactor = Compactor(self, settings.history, snapshot_index)
        self.compactor.check(0)

    # -- writing ---------------------------------------------------------------------------

    @property
    def written(self) -> Ticket:
        """The ticket that confirms everything written so far."""
        return self.log.newest()

    def write(
        self, entries: Sequence[bytes], *, lazy: bool, urgent: bool, leave: int = 0
    ) -> Ticket:
        """Write entries to the log, in order. Requires the lock."""
        if self._foreign:
            self._refuse_after_fork()
        if not urgent:
            self.compactor.expect(entries)
        try:
            if self.deferred:
                self.write_deferred()
            ticket = self.log.submit(entries, lazy=lazy, urgent=urgent, leave=leave)
        except (LogError, OSError) as error:
            if isinstance(error, LogFullError):
                self.compactor.is_full(refused=not urgent)
            raise as_mailbox_error(error, self.path) from error
        if self.writer.full:
            self.compactor.is_full()
        if self.writer.next_index >= self.compactor.check_index:
            self.compactor.check(0)
        return ticket

    def write_deferred(self) -> None:
        """Write the deferred entries; skip those that are not `needed` if space is low."""
        while self.deferred:
            entries, needed = self.deferred[0]
            leave = 0 if needed else self.compactor.budget.comfortable
            try:
                self.log.submit(entries, lazy=True, urgent=True, leave=leave)
            except LogFullError:
                if needed:
                    raise
            del self.deferred[0]

    def flush_deferred(self) -> int:
        """Write the deferred entries and return the next index of the log. Requires the lock."""
        if self.deferred:
            with translated(self.path):
                self.write_deferred()
        return self.writer.next_index

    def write_if_space(self, entries: Sequence[bytes]) -> None:
        """Write entries that no caller waits for, unless they need reserved space.

        After a crash these deliveries may be missing from the log; replay expects that.
        """
        try:
            self.write(entries, lazy=True, urgent=True, leave=self.compactor.budget.comfortable)
        except MailboxFullError:
            logger.debug("disk full: a delivery was not logged", store=self.path)

    def write_one(
        self, session: QueueSteps, entry: bytes, *, urgent: bool, lazy: bool = False
    ) -> tuple[int, Ticket | None]:
        """Write one entry (`write_if_space` if `lazy`) and return its index and ticket.

        The ticket is None if no other thread is writing: then this thread leads the group commit
        and must call `sync`. Requires the lock.
        """
        if self._foreign:
            self._refuse_after_fork()
        if self.deferred:
            self.flush_deferred()
        self.changed.add(session)
        if self.capture is not None:
            self.capture.take(session)
        self.step_index = self.writer.next_index
        compactor = self.compactor
        if len(entry) > compactor.budget.largest_bytes:
            compactor.expect((entry,))
        if not ((self._promises and self.is_holding) or (lazy and self.syncs)):
            try:
                index = self._lead(entry)
            except (LogError, OSError) as error:
                raise as_mailbox_error(error, self.path) from error
            if index is not None:
                if index >= compactor.check_index:
                    compactor.check(0)
                return index, None
        if lazy:
            self.write_if_space((entry,))
            return -1, None
        ticket = self.write((entry,), lazy=False, urgent=urgent)
        return ticket.first_index, ticket

    def sync(self) -> None:
        """Sync what `write_one` wrote."""
        try:
            self.log.sync()
        except (LogError, OSError) as error:
            raise as_mailbox_error(error, self.path) from error

    def reclaim(self) -> bool:
        """Wait for compaction if this thread may block; return whether the disk has space now."""
        return not self.is_holding and self.compactor.reclaim()

    @property
    def full(self) -> bool:
        """Whether new messages are refused because the disk is full."""
        return self.log.space.full

    def note_time(self) -> None:
        """Record a change of the system time, which a restart of the machine needs to know."""
        if self.time is not None:
            self.time.note()

    def halt_if_written(self, index: int, error: BaseException) -> None:
        """Halt the log if an interrupted step wrote past `index`: state and log now differ."""
        if self.log.next_index != index:
            self.log.halt(error)

    def halt_step(self, error: BaseException) -> None:
        """The same for a step that writes one entry: `step_index` is set until it is applied."""
        if self.step_index is not None:
            self.halt_if_written(self.step_index, error)
            self.step_index = None

    def restart_after_fork(self) -> None:
        super().restart_after_fork()
        self._foreign = True

    def _refuse_after_fork(self) -> NoReturn:
        raise MailboxClosedError(
            f"the store {self.path} belongs to process {self._opened_by}; after a fork only "
            "that one may use it"
        )

    def confirm(self, written: Written) -> None:
        if isinstance(written, Ticket) and written.done() and written.exception() is None:
            return
        try:
            super().confirm(written)
        except (LogError, OSError) as error:
            raise as_mailbox_error(error, self.path) from error

    async def confirmed(self, verb: Callable[[], R]) -> R:
        with translated(self.path):
            before = self.log.next_index
            try:
                return await super().confirmed(verb)
            except MailboxFullError:  # retry if nothing was written
                unchanged = self.log.next_index == before
                if not (unchanged and await asyncio.to_thread(self.compactor.reclaim)):
                    raise
            return await super().confirmed(verb)

    async def recorded(self) -> None:
        """Wait until everything written so far is confirmed."""
        with translated(self.path):
            await self.written

    def keep(self, records: Sequence[Record], entries: Sequence[bytes], first_index: int) -> None:
        """Point these records to their bodies in the log; cache the bodies while they are new."""
        bodies = [record.body for record in records]
        self._recent.update(enumerate(bodies, first_index))
        self._recent_bytes += sum(map(len, bodies))
        offsets = locations(first_index, map(len, entries))
        for record, at in zip(records, offsets, strict=True):
            record.body = at
        if self._recent_bytes > RECENT_BYTES_MAX:
            self.evict_oldest()

    def evict_oldest(self) -> None:
        """Evict in batches: finding the first key of a dict is slow after many removals."""
        bodies, end = self._recent, self.log.end_index
        for index in list(islice(bodies, 1 + len(bodies) // 8)):
            if index >= end:  # not on disk yet, so only readable from this cache
                break
            self._recent_bytes -= len(bodies.pop(index))

    def forget(self, record: Record) -> None:
        """Evict the body of a finished message from the cache. Requires the lock."""
        self._recent_bytes -= len(self._recent.pop(index_of(record.body), b""))

    def body(self, record: Record, *, wait: bool = True) -> bytes | None:
        """Return the body of a message; None if a repair of the log could not save it.

        With `wait=False`, raise BlockingIOError instead of reading from the disk.
        """
        at: int = record.body
        recent = self._recent.get(at >> INDEX_SHIFT)
        if recent is not None:
            return recent
        try:
            return journal.body_of(self.log.get(index_of(at), wait=wait))
        except BlockingIOError:
            raise
        except RecordLostError:
            return None
        except LogIndexError:
            if record.body == at:
                raise
            return self.body(record, wait=wait)  # the compactor has just rewritten it
        except (LogError, OSError) as error:
            raise as_mailbox_error(error, self.path) from error

    def declare(self, session: QueueSession) -> None:
        """Log the name and settings of a queue. Requires the lock."""
        queue = session.queue
        dead = queue.dead_letters.name if queue.dead_letters is not None else None
        details = (queue.name, msgspec.to_builtins(queue.settings), dead)
        entry = journal.entry_bytes(journal.DECLARED, session.number, 0, details=details)
        self.write([entry], lazy=True, urgent=True)

    def before_changes(self, sessions: Iterable[QueueSteps], events: Sequence[Event] = ()) -> None:
        self.changed.update(sessions)
        if self.capture is not None:
            self.capture.before_changes(sessions, events)

    def _new_session(self, queue: Queue) -> QueueSession:
        self.last_number += 1  # not reused: a deleted queue keeps its own history
        session = DurableQueueSession(self, queue, self.last_number)
        self.declare(session)
        return session

    def drop(self, name: str) -> None:
        with self.lock:
            session = self.sessions[name]
            entry = journal.entry_bytes(journal.DROPPED, session.number, 0)
            written = self.write([entry], lazy=False, urgent=True)
            self._drop(session)
        self.confirm(written)

    def beat(self) -> int:
        """Handle the timer; return NEVER after an error, which waiting receives will raise."""
        try:
            return super().beat()
        except MailboxError as error:
            if not isinstance(error, MailboxClosedError):
                logger.error("the store's timer has stopped", store=self.path, error=str(error))
            with self.lock:
                self.pulse.rearm(NEVER)
            return NEVER

    # -- closing ---------------------------------------------------------------------------

    @property
    def confirms_here(self) -> bool:  # type: ignore[override]
        """Whether this thread is syncing or waiting for a sync: a signal handler can't write."""
        commit = self.commit
        return bool(commit.leader or commit.engaged) and commit.is_busy_here()

    @property
    def busy_here(self) -> bool:
        """Whether a signal handler interrupted this thread inside a step that must finish first."""
        return self.lock.is_mine() or self.commit.is_busy_here() or self.compactor.busy_here

    def close(self) -> None:
        """Write a final snapshot if anything changed, and release the directory."""
        if self._foreign:  # after a fork the open files belong to the parent
            return
        self.compactor.stop()
        with translated(self.path):
            try:
                if self.log.halted is None:
                    self.note_time()
                    if self.log.next_index > self.compactor.snapshot_index:
                        self.compactor.take_snapshot()
                    with self.lock:  # reserve what the next open needs
                        self.compactor.budget.reserve(0)
            except MailboxFullError as error:  # the log is enough to recover
                logger.warning("closed without a snapshot", store=self.path, error=str(error))
            finally:
                self.log.close()
