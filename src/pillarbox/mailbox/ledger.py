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
from typing import NoReturn, TypeVar

import msgspec

from pillarbox.clock import Clock, WallClock
from pillarbox.core import journal
from pillarbox.core.errors import (
    MailboxClosedError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
)
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
from pillarbox.logger import logger
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.compactor import Compactor, read_snapshot
from pillarbox.mailbox.desk import Desk
from pillarbox.mailbox.durable_desk import DurableDesk
from pillarbox.mailbox.keeping import note_keeping, read_keeping
from pillarbox.mailbox.location import index_of, locations
from pillarbox.mailbox.locked import Written
from pillarbox.mailbox.replay import Replay
from pillarbox.mailbox.store import Store

__all__ = ["DurableDesk", "DurableStore", "in_words_of_mailboxes"]

R = TypeVar("R")

_RECENT_BYTES_MAX = 4 << 20


class DurableStore(Store):
    """All queues of one directory. One process at a time may have it open."""

    waits = True
    _foreign = False

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
        self._opened_by = os.getpid()
        self._recent: dict[int, bytes] = {}
        self._recent_bytes = 0
        self.last_number = -1  # of the queues, dropped ones too
        with _translated(self.path):
            _make_directory(self.disk, self.path)
            keeping = read_keeping(self.disk, self.path).but(segment_bytes, history)
            self.segment_bytes = keeping.segment_bytes
            self.log = Log.open(
                f"{self.path}/log",
                durability=durability,
                disk=self.disk,
                segment_bytes=keeping.segment_bytes,
            )
        try:
            super().__init__(clock or WallClock())
            with _translated(self.path):
                note_keeping(self.disk, self.path, keeping)
                snapshot_index = self._recover()
        except BaseException:
            self.log.close()
            raise
        self.syncs, self._lead = self.log.syncs, self.log.lead
        self.writer = self.log._writer  # for the hot path, as is the next one
        self._commit = self.writer.commit
        self.compactor = Compactor(self, keeping.history, snapshot_index)
        self.compactor.grown(0)

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

    def write_one(
        self, entry: bytes, *, urgent: bool, lazy: bool = False
    ) -> tuple[int, Ticket | None]:
        """`write`, and if nobody else is at work, lead the log: its index, and a promise if not.

        Where the store `syncs`, `sync_if_leading` must follow. Needs the lock.
        """
        if self._foreign:
            self._refuse_after_fork()
        index = None
        if self._held.promises is None:  # a task must not be kept waiting: it needs a ticket
            try:
                index = self._lead(entry)
            except (LogError, OSError) as error:
                raise in_words_of_mailboxes(error, self.path) from error
        if index is None:
            ticket = self.write((entry,), lazy=lazy, urgent=urgent)
            return ticket.first_index, ticket
        self.compactor.grown(1)
        return index, None

    def sync_if_leading(self) -> None:
        """Confirm what `write_one` wrote."""
        if not self._commit.leader or not self.log.leads:
            return
        try:
            self.log.sync()
        except (LogError, OSError) as error:
            raise in_words_of_mailboxes(error, self.path) from error

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
        bodies = [record.body for record in records]
        self._recent.update(enumerate(bodies, first_index))
        self._recent_bytes += sum(map(len, bodies))
        places = locations(first_index, map(len, entries))
        for record, place in zip(records, places, strict=True):
            record.body = place
        if self._recent_bytes > _RECENT_BYTES_MAX:
            self._forget_oldest()

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
            return journal.body_of(self.log.get(index_of(place)))
        except RecordLostError:
            return None
        except LogIndexError:
            if record.body == place:
                raise
            return self.body(record)  # the compactor has just moved it
        except (LogError, OSError) as error:
            raise in_words_of_mailboxes(error, self.path) from error

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
        self.last_number += 1  # never one of a dropped queue: its history is not the new one's
        desk = DurableDesk(self, queue, self.last_number)
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

    @property
    def confirms_here(self) -> bool:  # type: ignore[override]
        """Whether this thread leads the log, or waits for it: a handler can't write meanwhile."""
        commit = self._commit
        return bool(commit.leader or commit.engaged) and commit.is_busy_here()

    @property
    def busy_here(self) -> bool:
        """Whether this thread was interrupted in the middle of something that has to end first."""
        return self.lock.is_mine() or self.log.busy_here or self.compactor.busy_here

    def close(self) -> None:
        """Write a last snapshot and let go of the directory."""
        if self._foreign:  # what is open belongs to the process that this one was forked from
            return
        self.compactor.stop()
        with _translated(self.path):
            if self.log.halted is None:
                self.compactor.take_snapshot()
            self.log.close()

    # -- recovery --------------------------------------------------------------------------

    def _recover(self) -> int:
        """Build the state anew; the answer is the index of the snapshot it was built from."""
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
        return start

    def _restore(self, state: snapshot.StoreState) -> None:
        self.prefix, self._secret, self.last_key = state.prefix, state.secret, state.last_key
        self.last_number = state.last_number
        for each in state.queues:
            desk = self._known_desk(each.number, each.name, each.settings)
            desk.notes = each.notes
            snapshot.restore(each, desk.queue)
        for each in state.queues:
            if each.dead_letters is not None:
                self._bury_again(each.name, each.dead_letters)

    def _known_desk(self, number: int, name: str, settings: Settings) -> Desk:
        self.last_number = max(self.last_number, number)
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
    except (LogError, OSError) as error:
        raise in_words_of_mailboxes(error, path) from error
