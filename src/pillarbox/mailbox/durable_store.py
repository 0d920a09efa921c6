"""A store on disk: the same queues as in memory, with every event in one log before it happens.

One log serves all queues of the store, so one sync confirms everyone. A body stays in the log;
its record holds where it is. Opening replays the log from the last snapshot. If a write fails,
the queue is unchanged; if a sync fails, the store is read-only from then on and says so.
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
from pillarbox.mailbox.durable_session import RECENT_BYTES_MAX, DurableQueueSession
from pillarbox.mailbox.location import INDEX_SHIFT, index_of, locations
from pillarbox.mailbox.log_errors import as_mailbox_error, translated
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.queue_steps import QueueSteps, Written
from pillarbox.mailbox.replay import recover, refuse_foreign_settings
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.store_settings import read_store_settings, write_store_settings
from pillarbox.mailbox.store_time import Timekeeper

R = TypeVar("R")


class DurableStore(Store):
    """All queues of one directory. One process at a time may have it open."""

    waits = True
    time: Timekeeper | None = None  # only of a store that has the machine's time
    capture: Capture | None = None  # of a snapshot that is being taken

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
        self.deferred: list[tuple[Sequence[bytes], bool]] = []
        self.last_number = -1  # of the queues, dropped ones too
        self.changed: set[QueueSteps] = set()  # the queues, since they were last counted
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
        self.writer = self.log._writer  # for the hot path, as is the next one
        self.commit = self.writer.commit
        self.compactor = Compactor(self, settings.history, snapshot_index)
        self.compactor.look(0)

    # -- writing ---------------------------------------------------------------------------

    @property
    def written(self) -> Ticket:
        """A promise for everything that was written so far."""
        return self.log.newest()

    def write(
        self, entries: Sequence[bytes], *, lazy: bool, urgent: bool, leave: int = 0
    ) -> Ticket:
        """Put entries into the log, in order. Needs the lock."""
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
        if self.writer.next_index >= self.compactor.look_index:
            self.compactor.look(0)
        return ticket

    def defer(self, entries: Sequence[bytes], *, needed: bool) -> None:
        """Put these into the log before whatever is written next. Needs the lock.

        They say what time has done, which was noticed by someone who only looked. Should the
        process end before that, whoever opens the store notices it again.
        """
        self.deferred.append((entries, needed))

    def write_deferred(self) -> None:
        """Put into the log what is owed to it; what nobody waits for, if there is room."""
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
        """Pay what is owed, and say at which index a step that writes begins. Needs the lock."""
        if self.deferred:
            with translated(self.path):
                self.write_deferred()
        return self.writer.next_index

    def write_if_room(self, entries: Sequence[bytes]) -> None:
        """Put on record what nobody waits for, unless that takes room that others will need.

        After a crash such a delivery, or its end, was not: replay knows that this happens.
        """
        try:
            self.write(entries, lazy=True, urgent=True, leave=self.compactor.budget.comfortable)
        except MailboxFullError:
            logger.debug("a full disk has no room for what nobody waits for", store=self.path)

    def write_one(
        self, entry: bytes, *, urgent: bool, lazy: bool = False
    ) -> tuple[int, Ticket | None]:
        """`write` (if it is `lazy`, `write_if_room`) for one entry: its index, and a promise.

        There is no promise if nobody else is at work: then this thread leads the log, and `sync`
        must follow. Needs the lock.
        """
        if self._foreign:
            self._refuse_after_fork()
        compactor = self.compactor
        if len(entry) > compactor.budget.largest_bytes:
            compactor.expect((entry,))
        if not ((self._promises and self.is_holding) or (lazy and self.syncs)):
            try:
                index = self._lead(entry)
            except (LogError, OSError) as error:
                raise as_mailbox_error(error, self.path) from error
            if index is not None:
                if index >= compactor.look_index:
                    compactor.look(0)
                return index, None
        if lazy:
            self.write_if_room((entry,))
            return -1, None
        ticket = self.write((entry,), lazy=False, urgent=urgent)
        return ticket.first_index, ticket

    def sync(self) -> None:
        """Confirm what `write_one` wrote."""
        try:
            self.log.sync()
        except (LogError, OSError) as error:
            raise as_mailbox_error(error, self.path) from error

    def reclaim(self) -> bool:
        """Whether a disk that was full has room now; nobody is kept waiting who must not be."""
        return not self.is_holding and self.compactor.reclaim()

    @property
    def full(self) -> bool:
        """Whether messages are refused for want of room on the disk."""
        return self.log.space.full

    def note_time(self) -> None:
        """See whether the time of day was set: a restart of the machine needs to know."""
        if self.time is not None:
            self.time.note()

    def halt_if_written(self, index: int, error: BaseException) -> None:
        """A handler raised within a step: if the log has grown past `index`, it knows too much."""
        if self.log.next_index != index:
            self.log.halt(error)

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
            except MailboxFullError:  # it is tried again, if it has changed nothing
                unchanged = self.log.next_index == before
                if not (unchanged and await asyncio.to_thread(self.compactor.reclaim)):
                    raise
            return await super().confirmed(verb)

    async def recorded(self) -> None:
        """Everything that was written so far, and nobody waited for, is confirmed."""
        with translated(self.path):
            await self.written

    def keep(self, records: Sequence[Record], entries: Sequence[bytes], first_index: int) -> None:
        """Bodies of new messages are in the log from now on; while new, also at hand."""
        bodies = [record.body for record in records]
        self._recent.update(enumerate(bodies, first_index))
        self._recent_bytes += sum(map(len, bodies))
        places = locations(first_index, map(len, entries))
        for record, place in zip(records, places, strict=True):
            record.body = place
        if self._recent_bytes > RECENT_BYTES_MAX:
            self.forget_oldest()

    def forget_oldest(self) -> None:
        """Some at a time: the way to the first entry of a dict is long if many were removed."""
        bodies, end = self._recent, self.log.end_index
        for index in list(islice(bodies, 1 + len(bodies) // 8)):
            if index >= end:  # not confirmed, so nowhere else to be read
                break
            self._recent_bytes -= len(bodies.pop(index))

    def forget(self, record: Record) -> None:
        """The body of a message that is done need not be at hand any more. Needs the lock."""
        self._recent_bytes -= len(self._recent.pop(index_of(record.body), b""))

    def body(self, record: Record, *, wait: bool = True) -> bytes | None:
        """The body of a message; None if it was lost to damage that was repaired since.

        Unless it may `wait` for the disk: BlockingIOError if it had to.
        """
        place: int = record.body
        recent = self._recent.get(place >> INDEX_SHIFT)
        if recent is not None:
            return recent
        try:
            return journal.body_of(self.log.get(index_of(place), wait=wait))
        except BlockingIOError:
            raise
        except RecordLostError:
            return None
        except LogIndexError:
            if record.body == place:
                raise
            return self.body(record, wait=wait)  # the compactor has just moved it
        except (LogError, OSError) as error:
            raise as_mailbox_error(error, self.path) from error

    def declare(self, session: QueueSession) -> None:
        """Put on record what a queue is. Needs the lock."""
        assert isinstance(session, DurableQueueSession)
        queue = session.queue
        dead = queue.dead_letters.name if queue.dead_letters is not None else None
        details = (queue.name, msgspec.to_builtins(queue.settings), dead)
        entry = journal.entry_bytes(journal.DECLARED, session.number, 0, details=details)
        self.write([entry], lazy=True, urgent=True)

    def before_changes(self, sessions: Iterable[QueueSteps], events: Sequence[Event] = ()) -> None:
        self.changed.update(sessions)
        if self.capture is not None:
            self.capture.before_changes(sessions, events)

    def number_of(self, session: QueueSteps) -> int:
        """The number that stands for a queue in the log."""
        assert isinstance(session, DurableQueueSession)
        return session.number

    def _new_session(self, queue: Queue) -> QueueSession:
        self.last_number += 1  # never one of a dropped queue: its history is not the new one's
        session = DurableQueueSession(self, queue, self.last_number)
        self.declare(session)
        return session

    def drop(self, name: str) -> None:
        with self.lock:
            session = self.sessions[name]
            entry = journal.entry_bytes(journal.DROPPED, self.number_of(session), 0)
            written = self.write([entry], lazy=False, urgent=True)
            self._drop(session)
        self.confirm(written)

    def beat(self) -> int:
        """The pulse; it ends with the store. Those who wait learn why when their time is up."""
        try:
            return super().beat()
        except MailboxError as error:
            if not isinstance(error, MailboxClosedError):
                logger.error("the pulse of a store has stopped", store=self.path, error=str(error))
            with self.lock:
                self.pulse.rearm(NEVER)
            return NEVER

    # -- the end ---------------------------------------------------------------------------

    @property
    def confirms_here(self) -> bool:  # type: ignore[override]
        """Whether this thread leads the log, or waits for it: a handler can't write meanwhile."""
        commit = self.commit
        return bool(commit.leader or commit.engaged) and commit.is_busy_here()

    @property
    def busy_here(self) -> bool:
        """Whether this thread was interrupted in the middle of something that has to end first."""
        return self.lock.is_mine() or self.commit.is_busy_here() or self.compactor.busy_here

    def close(self) -> None:
        """Write a last snapshot, if anything was written, and let go of the directory."""
        if self._foreign:  # after a fork, what is open belongs to the parent
            return
        self.compactor.stop()
        with translated(self.path):
            try:
                if self.log.halted is None:
                    self.note_time()
                    if self.log.next_index > self.compactor.snapshot_index:
                        self.compactor.take_snapshot()
                    with self.lock:  # so that opening it again finds what it needs
                        self.compactor.budget.hold_back(0)
            except MailboxFullError as error:  # the log alone suffices
                logger.warning("closed without a snapshot", store=self.path, error=str(error))
            finally:
                self.log.close()
