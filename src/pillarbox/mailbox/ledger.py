"""A store on disk: the same queues as in memory, with every event in one log before it happens.

One log serves all queues of the store, so one sync confirms everyone. A body stays in the log;
its record holds where it is. Opening replays the log from the last snapshot. If a write fails,
the queue is unchanged; if a sync fails, the store is read-only from then on and says so.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from pillarbox.clock import Clock, WallClock
from pillarbox.core import apply, journal
from pillarbox.core.errors import (
    MailboxClosedError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
)
from pillarbox.core.events import Acknowledged, Event, Scheduled, Sent
from pillarbox.core.queue import NEVER, Lease, Queue, Record, Settings, waiting
from pillarbox.log import (
    Disk,
    Durability,
    Frame,
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

    # The hot path: `send` and `acknowledge` for one plain message, with the same steps in the
    # same order (settle, write, apply, serve, confirm), and nothing made that is not needed.

    def send_one(self, body: bytes) -> int:
        queue, store = self.queue, self.store
        lock = self._lock
        lock.acquire()
        try:
            now = self._now()
            if now >= queue.wake_at:
                self.settle(now)
            key = now >> 1
            if key <= store.last_key:
                key = store.last_key + 1
            entry = journal.sent_entry(self.number, key, body)
            ticket = store.write((entry,), lazy=False, urgent=False)
            store.last_key = key
            record = Record(key, body)
            store.keep((record,), (entry,), ticket.first_index)
            apply.lined_up(queue, (record,), 0)
            if self.waiters:
                self.serve(now)
        finally:
            lock.release()
        store.confirm(ticket)
        return key

    def acknowledge_one(self, lease: Lease) -> bool:
        queue, store = self.queue, self.store
        lock = self._lock
        lock.acquire()
        try:
            now = self._now()
            if now >= queue.wake_at:
                self.settle(now)
            if lease.deadline <= now:
                return False
            entry = journal.acknowledged_entry(self.number, lease)
            ticket = store.write((entry,), lazy=False, urgent=True)
            store.forget((lease,))
            apply.acknowledged(queue, (lease,))
            if self.waiters:
                self.serve(now)
        finally:
            lock.release()
        store.confirm(ticket)
        return True

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
        self.written: Ticket | None = None
        self.opened_by = os.getpid()
        self._recent: OrderedDict[int, bytes] = OrderedDict()
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
        self.compactor = Compactor(self, history or Retention(bytes=0))

    # -- writing ---------------------------------------------------------------------------

    def write(self, entries: Sequence[bytes], *, lazy: bool, urgent: bool) -> Ticket:
        """Put entries into the log, in order. Needs the lock."""
        if os.getpid() != self.opened_by:
            raise MailboxClosedError(
                f"the store {self.path} belongs to process {self.opened_by}; after a fork only "
                "that one may use it"
            )
        try:
            ticket = self.written = self.log.submit(entries, lazy=lazy, urgent=urgent)
        except (LogError, OSError) as error:
            raise in_words_of_mailboxes(error, self.path) from error
        self.compactor.grown(len(entries))
        return ticket

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
            if self.written is not None:
                await self.written

    def keep(self, records: Sequence[Record], entries: Sequence[bytes], first_index: int) -> None:
        """Bodies of new messages are in the log from now on; while new, also at hand."""
        recent = self._recent
        index = first_index
        for record, entry in zip(records, entries, strict=True):
            body: bytes = record.body
            record.body = location(index, len(entry))
            recent[index] = body
            self._recent_bytes += len(body)
            index += 1
        while self._recent_bytes > _RECENT_BYTES_MAX:
            oldest = next(iter(recent))
            if oldest >= self.log.end_index:  # not confirmed, so nowhere else to be read
                break
            self._recent_bytes -= len(recent.pop(oldest))

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

    def _new_desk(self, queue: Queue) -> Desk:
        number = 1 + max((_number(desk) for desk in self.desks.values()), default=-1)
        desk = DurableDesk(self, queue, number)
        self.declare(desk)
        return desk

    def drop(self, name: str) -> None:
        with self.lock:
            desk = self.desks[name]
            entry = journal.entry_bytes(journal.DROPPED, _number(desk), 0)
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
        replaying = _Replay(self, start)
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


class _Replay:
    """Lets the entries of a log happen to a store once more."""

    def __init__(self, store: DurableStore, start: int) -> None:
        self._store = store
        self._next = start
        self._has_gaps = False
        self.skipped = 0
        self._by_number = {
            desk.number: desk.queue
            for desk in store.desks.values()
            if isinstance(desk, DurableDesk)
        }
        self._by_key: dict[int, Record] = {}
        self.latest = 0

    def frame(self, frame: Frame) -> None:
        """One group of entries. Where a repair left a gap, what no longer fits is skipped."""
        self._has_gaps = self._has_gaps or frame.first_index != self._next
        self._next = frame.end_index
        for i, data in enumerate(frame.records):
            entry = journal.decode(data)
            try:
                self._entry(frame.first_index + i, data, entry)
            except (journal.ReplayError, KeyError) as error:
                if not self._has_gaps:
                    raise MailboxStorageError(
                        f"entry {frame.first_index + i} of the store {self._store.path} does not "
                        f"fit what came before it ({error}); please report this"
                    ) from error
                self._skip(entry)

    def _skip(self, entry: journal.Entry) -> None:
        """What was acknowledged must not come back, even if its delivery was lost."""
        self.skipped += 1
        queue = self._by_number.get(entry.queue)
        if entry.kind == journal.ACKNOWLEDGED and queue is not None:
            apply.removed(queue, {entry.key})

    def _entry(self, index: int, data: bytes, entry: journal.Entry) -> None:
        if entry.kind == journal.IDENTITY:
            self._store.prefix, self._store._secret = entry.details
        elif entry.kind == journal.DECLARED:
            self._declared(entry)
        elif entry.kind == journal.NOTED:
            self._desk(entry).notes = entry.details
        elif entry.kind == journal.DROPPED:
            self._store._drop(self._desk(entry))
            del self._by_number[entry.queue]
        elif entry.kind == journal.RESTATED:
            self._restated(entry.key, location(index, len(data)))
        else:
            if entry.kind in (journal.SENT, journal.SCHEDULED):
                self._store.last_key = max(self._store.last_key, entry.key)
            elif entry.kind == journal.LEASED:
                self.latest = max(self.latest, entry.at)
            queue = self._by_number[entry.queue]
            journal.replay(queue, entry, location(index, len(data)), self._find)

    def _find(self, name: str) -> Queue:
        return self._store.desks[name].queue

    def _declared(self, entry: journal.Entry) -> None:
        name, settings, dead = entry.details
        desk = self._store._known_desk(entry.queue, name, msgspec.convert(settings, Settings))
        self._by_number[entry.queue] = desk.queue
        if dead is not None:
            self._store._bury_again(name, dead)
        else:
            desk.queue.keep_dead_letters()
            desk.dead = None

    def _desk(self, entry: journal.Entry) -> Desk:
        return self._store.desks[self._by_number[entry.queue].name]

    def _restated(self, key: int, place: int) -> None:
        if key not in self._by_key:
            self._by_key = {record.key: record for record in all_records(self._store)}
        if key in self._by_key:
            self._by_key[key].body = place


def all_records(store: Store) -> Iterator[Record]:
    """Every message of a store, whatever its state."""
    for desk in store.desks.values():
        yield from waiting(desk.queue)
        yield from (record for _, _, record in desk.queue.schedule)
        yield from (lease.record for lease in desk.queue.leases)


def _number(desk: Desk) -> int:
    assert isinstance(desk, DurableDesk)
    return desk.number


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
