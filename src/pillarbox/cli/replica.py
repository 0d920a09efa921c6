"""Reads the queues of a store from its log without opening the store.

Takes no lock and writes nothing, so another process may be writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pillarbox.cli import output
from pillarbox.cli.output import Advance
from pillarbox.clock import WallClock
from pillarbox.closing import Closing
from pillarbox.core import journal
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import Queue, Record
from pillarbox.log import Frame, LogError, LogIndexError, LogReader, RealDisk, RecordLostError
from pillarbox.log.confirmed import confirmed_by_last_writer
from pillarbox.log.directory import LogDirectory
from pillarbox.mailbox.durable_session import index_of
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.replay import Replay
from pillarbox.mailbox.snapshot import StoreState
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.store_files import read_snapshot, refuse_foreign, store_time

R = TypeVar("R")

_ATTEMPTS = 5


def retry_while_compacting(read: Callable[[], R]) -> R:
    """Retry a read if the writer's compactor dropped a segment before it was read."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return read()
        except (LogIndexError, FileNotFoundError):
            continue
    return read()


def read_replica(store: str, log: str, advance: Advance) -> Replay:
    """Replay the store's log and return its current queues."""
    return retry_while_compacting(lambda: _read(store, log, advance))


def _read(store: str, log: str, advance: Advance) -> Replay:
    state = read_snapshot(RealDisk(), store)
    confirmed = confirmed_by_last_writer(LogDirectory(RealDisk(), log))
    with LogReader(log, RealDisk()) as reader:
        refuse_foreign(state, store, reader)
        if reader.end_index < confirmed:
            output.remark(
                f"the log ends at record {reader.end_index:,}, but {confirmed:,} were written; "
                f"check it with 'pillarbox log verify {store}'"
            )
        if state is None and reader.first_index > 0:
            raise LogError(
                f"the snapshot of the store {store} is missing or damaged, and its log no longer"
                " goes back to the beginning; restore the store from a backup"
            )
        frames = reader.frames(state.index if state else 0)
        replayed = replay(state, frames, reader.end_index, advance)
    replayed.settle(store_time(RealDisk(), store, replayed.latest))
    return replayed


def replay(state: StoreState | None, frames: Iterable[Frame], end: int, advance: Advance) -> Replay:
    """Rebuild the queues of a store from its snapshot and the frames of its log."""
    replayed = Replay(state)
    replayed.frames(frames, lambda index: advance(index, end))
    return replayed


class _ReadOnlySession(QueueSession):
    """A queue whose bodies are read from the log."""

    def __init__(self, store: Store, queue: Queue, log: LogReader) -> None:
        super().__init__(store, queue)
        self._log = log

    def bodies(
        self, records: Sequence[Record], *, wait: bool = True, most_bytes: int | None = None
    ) -> list[bytes | None]:
        return [self._body(record) for record in records]

    def _body(self, record: Record) -> bytes | None:
        try:
            return journal.body_of(self._log.get(index_of(record.body)))
        except RecordLostError:
            return None


class ReadOnlyMailbox(Closing):
    """The part of a mailbox that `peek` and `tail` use. Each call reads the current state."""

    def __init__(self, store: str, log: str, queue: str) -> None:
        self._store, self._log, self.name = store, log, queue

    def stats(self) -> Stats:
        return self._read(lambda box: box.stats())

    def peek(self, max_messages: int = 10, *, state: State = "ready") -> Sequence[Message[Any]]:
        return self._read(lambda box: box.peek(max_messages, state=state))

    def close(self) -> None:
        """Do nothing: each call opens and closes the log."""

    def _read(self, verb: Callable[[LocalMailbox[bytes]], R]) -> R:
        return retry_while_compacting(lambda: self._read_once(verb))

    def _read_once(self, verb: Callable[[LocalMailbox[bytes]], R]) -> R:
        replica = read_replica(self._store, self._log, lambda done, total: None)
        queue = next((each for each in replica.queues.values() if each.name == self.name), None)
        if queue is None:
            raise MailboxError(f"the queue {self.name!r} in {self._store} no longer exists")
        store = Store(WallClock())
        store.prefix = replica.names.prefix or store.prefix
        with LogReader(self._log, RealDisk()) as log:
            return verb(LocalMailbox(_ReadOnlySession(store, queue, log), bytes))
