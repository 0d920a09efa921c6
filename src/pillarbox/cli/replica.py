"""The queues of a store as its log tells them, rebuilt in memory without touching the store.

It takes no lock and may be made beside the writer. Entries that no longer fit, because a
repair could not save what came before them, are set aside and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pillarbox.cli.output import Advance
from pillarbox.core import apply, journal
from pillarbox.core.queue import Queue, Record, Settings, waiting
from pillarbox.log import Frame, LogError, LogIndexError, LogReader, RealDisk
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.belonging import refuse_foreign
from pillarbox.mailbox.compactor import read_snapshot
from pillarbox.mailbox.location import index_of, location
from pillarbox.mailbox.names import Names
from pillarbox.mailbox.store_time import store_time

TRIES = 5  # against a compactor that drops what we are about to read
_STEP = 1024


class Replica:
    """Queues by number, as of the last entry that was given."""

    def __init__(self, state: snapshot.StoreState | None) -> None:
        self.names = Names.of(state)
        self.queues: dict[int, Queue] = {}
        self.snapshot_index = state.index if state is not None else 0
        self.misfits: list[journal.Entry] = []
        self.now = 0  # the time of the store as of which it is shown
        self._by_name: dict[str, Queue] = {}
        self._moved: dict[int, int] = {}  # key -> where its body is now
        for each in state.queues if state is not None else ():
            snapshot.restore(each, self._queue(each.number, each.name, each.settings))
        for each in state.queues if state is not None else ():
            if each.dead_letters is not None:
                self._bury(each.name, each.dead_letters)

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

    def settle(self, now: int) -> None:
        """Let happen what is due by now, as the store would when it is next used."""
        self.now = now
        for queue in self.queues.values():
            apply.settle(queue, now)

    def bodies(self) -> Iterator[tuple[str, Record, int]]:
        """Every live message: its queue, itself, and the index where its body lies."""
        for queue in self.queues.values():
            for record in _records(queue):
                yield queue.name, record, self.index_of(record)

    def index_of(self, record: Record) -> int:
        """The index where the body of a message lies."""
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
            self._bury(name, dead)
        else:
            self._by_name[name].keep_dead_letters()

    def _dropped(self, queue: Queue) -> None:
        del self._by_name[queue.name]
        queue.keep_dead_letters()
        for source in list(queue.sources):
            source.keep_dead_letters()

    def _bury(self, source: str, target: str) -> None:
        self._by_name[source].send_dead_letters_to(self._by_name[target])


def replica_of(store: str, log: str, advance: Advance) -> Replica:
    """The store's queues as of now."""
    for attempt in range(TRIES):
        try:
            return _read(store, log, advance)
        except (LogIndexError, FileNotFoundError):
            if attempt == TRIES - 1:
                raise
    raise AssertionError("unreachable")


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
    replica.settle(store_time(RealDisk(), store, state.time if state is not None else 0))
    return replica


def replay(replica: Replica, frames: Iterable[Frame], end: int, advance: Advance) -> None:
    """Let the entries of these frames happen, those that the snapshot has not seen."""
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
