"""A store on disk: the same queues as in memory, with every event in one log before it happens.

One log serves all queues of the store, so one sync confirms everyone. A body stays in the log;
its record holds where it is. Opening replays the log from the last snapshot. If a write fails,
the queue is unchanged; if a sync fails, the store is read-only from then on and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NoReturn, TypeVar

import msgspec

from pillarbox.clock import Clock, WallClock
from pillarbox.core import apply, decide, journal
from pillarbox.core.errors import (
    MailboxClosedError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
)
from pillarbox.core.events import Acknowledged, Event, Scheduled, Sent
from pillarbox.core.queue import NEVER, Lease, Queue, Record, Settings
from pillarbox.log import (
    Disk,
    Durability,
    Log,
    LogClosedError,
    LogError,
    LogFullError,
    LogIndexError,
    LogLockedError,
    RealDisk,
    RecordLostError,
    Retention,
    Ticket,
)
from pillarbox.log.log import SEGMENT_BYTES
from pillarbox.logger import logger
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.compactor import Compactor, read_snapshot
from pillarbox.mailbox.desk import Desk, Written
from pillarbox.mailbox.location import index_of, location
from pillarbox.mailbox.replay import Replay
from pillarbox.mailbox.store import Store

R = TypeVar("R")

_RECENT_BYTES_MAX = 32 << 20
_NEW = (Sent, Scheduled)


class DurableDesk(Desk):
    """A queue whose events go into the store's log."""

    store: DurableStore

    def __init__(self, store: DurableStore, queue: Queue, number: int) -> None:
        super().__init__(store, queue)
        self.number = number

    def bodies(self, records: Sequence[Record]) -> list[bytes | None]:
        return [self.store.body(record) for record in records]

    def _write(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        store = self.store
        if not events:  # a repetition is confirmed when what it repeats is
            return None if lazy else store.written
        entries: list[bytes] = []
        for event in events:
            entries += journal.encode(event, self.number)
        if not entries:
            return None
        first = events[0]  # new messages come alone
        ticket = store.write(entries, lazy=lazy, urgent=not isinstance(first, _NEW))
        if isinstance(first, _NEW):
            store.keep(first.records, entries, ticket.first_index)
        else:
            for event in events:
                if isinstance(event, Acknowledged):
                    store.forget(event.leases)
        return ticket

    # The hot path: `send`, `receive` and `acknowledge` for one plain message, with the same
    # steps in the same order (settle, write, apply, serve, confirm), and nothing made that is
    # not needed. Nobody else at work: what is written is not even put in a group.

    def send_one(self, body: bytes) -> int:
        queue, store = self.queue, self.store
        lock, leads, ticket = self._lock, False, None
        try:
            lock.acquire()
            try:
                now = self._now()
                if now >= queue.wake_at:
                    self.settle(now)
                key = now >> 1
                if key <= store.last_key:
                    key = store.last_key + 1
                entry = journal.sent_entry(self.number, key, body)
                index = store.lead(entry)
                if index is None:
                    ticket = store.write((entry,), lazy=False, urgent=False)
                    index = ticket.first_index
                else:
                    leads = store.syncs
                store.last_key = key
                record = Record(key, location(index, len(entry)))
                store.keep_one(index, body)
                apply.lined_up(queue, (record,), 0)
                if self.waiters:
                    self.serve(now)
            finally:
                lock.release()
        finally:  # whatever happened, others wait for a leader to do its part
            if leads:
                store.sync()
        if ticket is not None:
            store.confirm(ticket)
        return key

    def receive_one(self, timeout: int) -> Lease | None:
        """Lease the next message, if that needs no more than a look at the line."""
        queue = self.queue
        if self.dead is not None or queue.sources:
            return None
        with self._lock:
            now = self._now()
            if now >= queue.wake_at:
                self.settle(now)
            if not queue.mask:
                return None
            leases = decide.receive(queue, 1, timeout, now)
            entry = journal.leased_entry(self.number, leases[0])
            store = self.store
            if store.syncs or store.lead(entry) is None:
                store.write((entry,), lazy=True, urgent=True)
            apply.leased(queue, leases)
            return leases[0]

    def acknowledge_one(self, lease: Lease) -> bool:
        queue, store = self.queue, self.store
        lock, leads, ticket = self._lock, False, None
        try:
            lock.acquire()
            try:
                now = self._now()
                if now >= queue.wake_at:
                    self.settle(now)
                if lease.deadline <= now:
                    return False
                entry = journal.acknowledged_entry(self.number, lease)
                if store.lead(entry) is None:
                    ticket = store.write((entry,), lazy=False, urgent=True)
                else:
                    leads = store.syncs
                store.forget((lease,))
                apply.acknowledged(queue, (lease,))
                if self.waiters:
                    self.serve(now)
            finally:
                lock.release()
        finally:
            if leads:
                store.sync()
        if ticket is not None:
            store.confirm(ticket)
        return True

    def end(self) -> None:
        super().end()
        self.send_one = self._refuse_one  # type: ignore[method-assign]

    def _refuse_one(self, body: bytes) -> NoReturn:
        raise MailboxClosedError(f"queue {self.queue.name!r} was deleted")

    def configure(self, **changes: Any) -> None:
        super().configure(**changes)
        self.store.declare(self)

    def note(self, notes: dict[str, Any]) -> None:
        entry = journal.entry_bytes(journal.NOTED, self.number, 0, details=notes)
        self.store.write([entry], lazy=True, urgent=True)
        super().note(notes)


class DurableStore(Store):
    """All queues of one directory. One process at a time may have it open."""

    waits = True
    _foreign = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        segment_bytes: int = SEGMENT_BYTES,
        history: Retention | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.disk = disk if disk is not None else RealDisk()
        self.segment_bytes = segment_bytes
        self._opened_by = os.getpid()
        self._recent: dict[int, bytes] = {}
        self._recent_bytes = 0
        with _translated(self.path):
            _make_directory(self.disk, self.path)
            self.log = Log.open(
                f"{self.path}/log",
                durability=durability,
                disk=self.disk,
                segment_bytes=segment_bytes,
            )
        try:
            super().__init__(clock or WallClock())
            with _translated(self.path):
                self._recover()
        except BaseException:
            self.log.close()
            raise
        self.syncs, self._lead = self.log.syncs, self.log.lead
        self.compactor = Compactor(self, history or Retention(bytes=0))

    # -- writing ---------------------------------------------------------------------------

    @property
    def written(self) -> Ticket:
        """A promise for everything that was written so far."""
        return self.log.newest()

    def write(self, entries: Sequence[bytes], *, lazy: bool, urgent: bool) -> Ticket:
        """Put entries into the log, in order. Needs the lock."""
        if self._foreign:
            self._refuse_after_fork()
        try:
            ticket = self.log.submit(entries, lazy=lazy, urgent=urgent)
        except (LogError, OSError) as error:
            raise in_words_of_mailboxes(error, self.path) from error
        self.compactor.grown(len(entries))
        return ticket

    def lead(self, entry: bytes) -> int | None:
        """`write`, with nobody else at work: its index, or None. Where `syncs`, `sync` it then."""
        if self._foreign:
            self._refuse_after_fork()
        if self._held.promises is not None:  # a task must not be kept waiting: it needs a ticket
            return None
        try:
            index = self._lead(entry)
        except (LogError, OSError) as error:
            raise in_words_of_mailboxes(error, self.path) from error
        if index is not None:
            self.compactor.grown(1)
        return index

    def sync(self) -> None:
        """Confirm what `lead` wrote."""
        try:
            self.log.sync()
        except (LogError, OSError) as error:
            raise in_words_of_mailboxes(error, self.path) from error

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
            raise in_words_of_mailboxes(error, self.path) from error

    async def confirmed(self, verb: Callable[[], R]) -> R:
        with _translated(self.path):
            return await super().confirmed(verb)

    async def recorded(self) -> None:
        """Everything that was written so far, and nobody waited for, is confirmed."""
        with _translated(self.path):
            await self.written

    def keep(self, records: Sequence[Record], entries: Sequence[bytes], first_index: int) -> None:
        """Bodies of new messages are in the log from now on; while new, also at hand."""
        index = first_index
        for record, entry in zip(records, entries, strict=True):
            self.keep_one(index, record.body)
            record.body = location(index, len(entry))
            index += 1

    def keep_one(self, index: int, body: bytes) -> None:
        self._recent[index] = body
        self._recent_bytes += len(body)
        if self._recent_bytes > _RECENT_BYTES_MAX:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Some at a time: the way to the first entry of a dict is long if many were removed."""
        bodies, end = self._recent, self.log.end_index
        for index in list(islice(bodies, 1 + len(bodies) // 8)):
            if index >= end:  # not confirmed, so nowhere else to be read
                break
            self._recent_bytes -= len(bodies.pop(index))

    def forget(self, leases: Sequence[Lease]) -> None:
        """The bodies of messages that are done need not be at hand any more. Needs the lock."""
        for lease in leases:
            self._recent_bytes -= len(self._recent.pop(index_of(lease.record.body), b""))

    def body(self, record: Record) -> bytes | None:
        """The body of a message; None if it was lost to damage that was repaired since."""
        place: int = record.body
        recent = self._recent.get(index_of(place))
        if recent is not None:
            return recent
        try:
            with _translated(self.path):
                return journal.body_of(self.log.get(index_of(place)))
        except RecordLostError:
            return None
        except LogIndexError:
            if record.body == place:
                raise
            return self.body(record)  # the compactor has just moved it

    def declare(self, desk: Desk) -> None:
        """Put on record what a queue is. Needs the lock."""
        assert isinstance(desk, DurableDesk)
        queue = desk.queue
        dead = queue.dead_letters.name if queue.dead_letters is not None else None
        details = (queue.name, msgspec.to_builtins(queue.settings), dead)
        entry = journal.entry_bytes(journal.DECLARED, desk.number, 0, details=details)
        self.write([entry], lazy=True, urgent=True)

    def number_of(self, desk: Desk) -> int:
        """The number that stands for a queue in the log."""
        assert isinstance(desk, DurableDesk)
        return desk.number

    def _new_desk(self, queue: Queue) -> Desk:
        number = 1 + max((self.number_of(desk) for desk in self.desks.values()), default=-1)
        desk = DurableDesk(self, queue, number)
        self.declare(desk)
        return desk

    def drop(self, name: str) -> None:
        with self.lock:
            desk = self.desks[name]
            entry = journal.entry_bytes(journal.DROPPED, self.number_of(desk), 0)
            written = self.write([entry], lazy=False, urgent=True)
            self._drop(desk)
        self.confirm(written)

    def bury_at(self, source: Desk, target: Desk, max_deliveries: int) -> None:
        settings = source.queue.settings
        known = source.dead is target and settings.max_deliveries == max_deliveries
        if not known:
            super().bury_at(source, target, max_deliveries)

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

    def close(self) -> None:
        """Write a last snapshot and let go of the directory."""
        if self._foreign:  # what is open belongs to the process that this one was forked from
            return
        self.compactor.stop()
        with _translated(self.path):
            if self.log.poisoned is None:
                self.compactor.take_snapshot()
            self.log.close()

    # -- recovery --------------------------------------------------------------------------

    def _recover(self) -> None:
        start, latest = 0, self.log.last_time_ns
        state = read_snapshot(self.disk, self.path)
        if state is not None:
            start, latest = state.index, max(latest, state.time)
            self._restore(state)
        elif self.log.first_index > 0:
            raise MailboxStorageError(
                f"the snapshot of the store {self.path} is missing or damaged, and its log no "
                "longer goes back to the beginning; restore the store from a backup"
            )
        replaying = Replay(self, start)
        for frame in self.log.frames(start):
            replaying.frame(frame)
        if replaying.skipped:
            logger.error(
                "entries were skipped because a repair could not save what came before them",
                store=self.path,
                skipped=replaying.skipped,
            )
        if isinstance(self.clock, WallClock):
            self.clock.go_on_from(max(latest, replaying.latest))
        if self.log.next_index == 0:
            identity = (self.prefix, self._secret)
            self.log.append(journal.entry_bytes(journal.IDENTITY, 0, 0, details=identity))

    def _restore(self, state: snapshot.StoreState) -> None:
        self.prefix, self._secret, self.last_key = state.prefix, state.secret, state.last_key
        for each in state.queues:
            desk = self._known_desk(each.number, each.name, each.settings)
            desk.notes = each.notes
            snapshot.restore(each, desk.queue)
        for each in state.queues:
            if each.dead_letters is not None:
                self._bury_again(each.name, each.dead_letters)

    def _known_desk(self, number: int, name: str, settings: Settings) -> Desk:
        desk = self.desks.get(name)
        if desk is None:
            desk = self.desks[name] = DurableDesk(self, Queue(name, settings), number)
        desk.queue.settings = settings
        desk.plain = False
        return desk

    def _bury_again(self, source: str, target: str) -> None:
        self.desks[source].queue.send_dead_letters_to(self.desks[target].queue)
        self.desks[source].dead = self.desks[target]


def _make_directory(disk: Disk, path: str) -> None:
    try:
        disk.names(path)
    except FileNotFoundError:
        disk.make_directory(path)
        disk.sync_directory(os.path.dirname(path.rstrip("/")) or ".")


def in_words_of_mailboxes(error: Exception, path: str) -> Exception:
    """What an error of the log of the store at `path` is to a mailbox."""
    if isinstance(error, LogFullError):
        return MailboxFullError(str(error))
    if isinstance(error, LogClosedError):
        return MailboxClosedError(f"the store {path} was closed: open it again")
    if isinstance(error, LogLockedError):
        holder = f"process {error.pid}" if error.pid else "another process"
        return MailboxStorageError(
            f"the store {path} is open in {holder}, and one process at a time may have "
            "it: close it there first, or give this process a store of its own"
        )
    return MailboxStorageError(str(error))


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except (LogIndexError, RecordLostError):
        raise
    except (LogError, OSError) as error:
        raise in_words_of_mailboxes(error, path) from error
