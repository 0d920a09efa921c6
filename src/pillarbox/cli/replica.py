"""The queues of a store, rebuilt in memory from its log without opening the store.

It takes no lock and writes nothing, so another process may be writing. Entries that no longer
fit, because a repair could not save the records before them, are collected in `misfits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from pillarbox.cli.output import Advance
from pillarbox.clock import WallClock
from pillarbox.closing import Closing
from pillarbox.core import apply, journal
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import Queue, Record, Settings, waiting
from pillarbox.log import Frame, LogError, LogIndexError, LogReader, RealDisk, RecordLostError
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.belonging import refuse_foreign
from pillarbox.mailbox.compactor import read_snapshot
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.location import index_of, location
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.names import Names
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.store_time import store_time

R = TypeVar("R")

_TRIES = 5
_STEP = 1024


class Replica:
    """Queues by number, as of the last entry applied."""

    def __init__(self, state: snapshot.StoreState | None) -> None:
        self.names = Names.of(state)
        self.queues: dict[int, Queue] = {}
        self.snapshot_index = state.index if state is not None else 0
        self.misfits: list[journal.Entry] = []
        self.now = 0  # in the time of the store
        self._by_name: dict[str, Queue] = {}
        self._moved: dict[int, int] = {}  # key -> location of its body
        for each in state.queues if state is not None else ():
            snapshot.restore(each, self._queue(each.number, each.name, each.settings))
        for each in state.queues if state is not None else ():
            if each.dead_letters is not None:
                self._set_dead_letters(each.name, each.dead_letters)

    def entry(self, index: int, data: bytes) -> None:
        entry = journal.decode(data)
        self.names.learn(entry)
        if entry.kind == journal.IDENTITY:
            return
        if entry.kind == journal.RESTATED:
            self._moved[entry.key] = location(index, len(data))
            return
        try:
            if entry.kind == journal.DECLARED:
                self._declared(entry)
            elif entry.kind == journal.DROPPED:
                self._dropped(self.queues.pop(entry.queue))
            elif entry.kind != journal.NOTED:
                place = location(index, len(data))
                journal.replay(self.queues[entry.queue], entry, place, self._by_name.__getitem__)
        except (journal.ReplayError, AssertionError, LookupError):
            self.misfits.append(entry)

    def advance_to(self, now: int) -> None:
        """Expire leases and release delayed messages that are due, as the store would."""
        self.now = now
        for queue in self.queues.values():
            apply.settle(queue, now)

    def bodies(self) -> Iterator[tuple[str, Record, int]]:
        """Every live message: its queue, its record, and the log index of its body."""
        for queue in self.queues.values():
            for record in _records(queue):
                yield queue.name, record, self.index_of(record)

    def index_of(self, record: Record) -> int:
        """The log index of a message's body."""
        return index_of(self._moved.get(record.key, record.body))

    def _queue(self, number: int, name: str, settings: Settings) -> Queue:
        queue = self._by_name.get(name)
        if queue is None:
            queue = self.queues[number] = self._by_name[name] = Queue(name, settings)
        queue.settings = settings
        return queue

    def _declared(self, entry: journal.Entry) -> None:
        name, settings, dead = entry.details
        self._queue(entry.queue, name, msgspec.convert(settings, Settings))
        if dead is not None:
            self._set_dead_letters(name, dead)
        else:
            self._by_name[name].keep_dead_letters()

    def _dropped(self, queue: Queue) -> None:
        del self._by_name[queue.name]
        queue.keep_dead_letters()
        for source in list(queue.sources):
            source.keep_dead_letters()

    def _set_dead_letters(self, source: str, target: str) -> None:
        self._by_name[source].send_dead_letters_to(self._by_name[target])


def retry_while_compacting(read: Callable[[], R]) -> R:
    """Read again if the writer's compactor dropped a segment before it was read."""
    for _ in range(_TRIES - 1):
        try:
            return read()
        except (LogIndexError, FileNotFoundError):
            continue
    return read()


def read_replica(store: str, log: str, advance: Advance) -> Replica:
    """The store's queues as of now."""
    return retry_while_compacting(lambda: _read(store, log, advance))


def _read(store: str, log: str, advance: Advance) -> Replica:
    state = read_snapshot(RealDisk(), store)
    replica = Replica(state)
    with LogReader(log, RealDisk()) as reader:
        refuse_foreign(state, store, reader)
        start = replica.snapshot_index
        if state is None and reader.first_index > 0:
            raise LogError(
                f"the snapshot of the store {store} is missing or damaged, and its log no longer"
                " goes back to the beginning; restore the store from a backup"
            )
        replay(replica, reader.frames(start), reader.end_index, advance)
    replica.advance_to(store_time(RealDisk(), store, state.time if state is not None else 0))
    return replica


def replay(replica: Replica, frames: Iterable[Frame], end: int, advance: Advance) -> None:
    """Apply the entries of these frames that are newer than the snapshot."""
    start = replica.snapshot_index
    for frame in frames:
        for index, data in enumerate(frame.records, frame.first_index):
            if index >= start:
                replica.entry(index, data)
            if index % _STEP == 0:
                advance(index - start, max(end - start, 1))


def _records(queue: Queue) -> Iterator[Record]:
    yield from waiting(queue)
    yield from (record for _, _, record in queue.schedule)
    yield from (lease.record for lease in queue.leases)


class _ReplicaSession(QueueSession):
    """A queue of a replica, whose bodies are read from the log."""

    def __init__(self, store: Store, queue: Queue, replica: Replica, log: LogReader) -> None:
        super().__init__(store, queue)
        self._replica, self._log = replica, log

    def bodies(
        self, records: Sequence[Record], *, wait: bool = True, most_bytes: int | None = None
    ) -> list[bytes | None]:
        return [self._body(record) for record in records]

    def _body(self, record: Record) -> bytes | None:
        try:
            return journal.body_of(self._log.get(self._replica.index_of(record)))
        except RecordLostError:
            return None


class ReadOnlyMailbox(Closing):
    """The part of a mailbox that `peek` and `tail` use. Each call sees the queue as of then."""

    def __init__(self, store: str, log: str, queue: str) -> None:
        self._store, self._log, self.name = store, log, queue

    def stats(self) -> Stats:
        return self._read(lambda box: box.stats())

    def peek(self, max_messages: int = 10, *, state: State = "ready") -> Sequence[Message[Any]]:
        return self._read(lambda box: box.peek(max_messages, state=state))

    def close(self) -> None:
        """Nothing is open."""

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
            return verb(LocalMailbox(_ReplicaSession(store, queue, replica, log), bytes))
