"""Rebuilds the queues of a store from its snapshot and the entries of its log.

`recover` opens a `DurableStore` with it; the command line uses it to read a store that another
process has open. Where a repair left a gap, entries about lost messages are skipped and collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from pillarbox.clock import WallClock
from pillarbox.core import apply, journal, lines
from pillarbox.core.errors import MailboxStorageError
from pillarbox.core.queue import NEVER, Queue, Record, Settings, waiting
from pillarbox.log import Frame
from pillarbox.logger import logger
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.durable_session import DurableQueueSession, index_of, location, locations
from pillarbox.mailbox.message_ids import Names
from pillarbox.mailbox.store_files import (
    SETTINGS_FILE,
    StoreSettings,
    Timekeeper,
    read_snapshot,
    settings_misfit,
    snapshot_misfit,
)

if TYPE_CHECKING:
    from pillarbox.mailbox.durable_store import DurableStore

_head = journal.HEAD.unpack_from
_NEW = (journal.SENT, journal.SCHEDULED)
_NO_SNAPSHOT = snapshot.StoreState(0, "", b"", 0, 0, [])


class Replay:
    """The queues by number, as of the last entry replayed.

    With the path of a `store`, an inconsistent entry is an error unless records are missing.
    """

    def __init__(self, state: snapshot.StoreState | None, store: str | None = None) -> None:
        self.names = Names.of(state)
        state = state or _NO_SNAPSHOT
        self.secret = state.secret
        self.last_key = state.last_key
        self.last_number = state.last_number
        self.latest = state.time  # the latest time seen
        self.start = self._next = state.index
        self.queues: dict[int, Queue] = {}
        self.notes: dict[int, dict[str, Any]] = {}
        self.misfits: list[journal.Entry] = []
        self.now = 0  # the time passed to `settle`
        self._store = store
        self._has_gaps = False
        self._by_name: dict[str, Queue] = {}
        # Built when the first rewritten message is found.
        self._by_key: dict[int, Record] | None = None
        for each in state.queues:
            snapshot.restore(each, self._declare(each.number, each.name, each.settings))
            self.notes[each.number] = each.notes
        for each in state.queues:
            if each.dead_letters is not None:
                self._set_dead_letters(each.name, each.dead_letters)

    def frames(
        self, frames: Iterable[Frame], advance: Callable[[int], object] = lambda index: None
    ) -> None:
        """Replay the entries newer than the snapshot; call `advance` with each index reached."""
        for frame in frames:
            if frame.end_index > self.start:
                entries = frame.records[max(0, self.start - frame.first_index) :]
                self._frame(max(self.start, frame.first_index), entries)
            advance(frame.end_index)

    def settle(self, now: int) -> None:
        """Expire leases and release delayed messages that are due, as a store does."""
        self.now = now
        for queue in self.queues.values():
            apply.settle(queue, now)

    def _frame(self, first: int, entries: list[bytes]) -> None:
        """Replay one frame; usually all its entries are plain messages of one queue."""
        self._has_gaps = self._has_gaps or first != self._next
        self._next = first + len(entries)
        kinds, priorities, _, queues, keys, _, _, details = zip(*map(_head, entries), strict=True)
        plain = kinds.count(journal.SENT) == len(kinds) and not any(details)
        if plain and len(set(queues)) == len(set(priorities)) == 1 and queues[0] in self.queues:
            places = locations(first, map(len, entries))
            records = list(map(Record, keys, places, priorities))
            apply.append_plain(self.queues[queues[0]], records, priorities[0])
            if self._by_key is not None:
                self._by_key.update(zip(keys, records, strict=True))
            self.last_key = max(self.last_key, *keys)
        else:
            for index, data in enumerate(entries, first):
                self._one(index, data)

    def _one(self, index: int, data: bytes) -> None:
        """Replay one entry. After a gap, skip entries that are inconsistent."""
        entry = journal.decode(data)
        try:
            self._entry(index, data, entry)
        except (journal.ReplayError, AssertionError, LookupError) as error:
            if self._store is not None and not self._has_gaps:
                raise MailboxStorageError(
                    f"entry {index} of the store {self._store} contradicts the entries before it "
                    f"({error}); please report this"
                ) from error
            self.misfits.append(entry)
            if entry.kind == journal.ACKNOWLEDGED and entry.queue in self.queues:
                # It must not be delivered again, even if its delivery was not logged.
                apply.removed(self.queues[entry.queue], {entry.key})

    def _entry(self, index: int, data: bytes, entry: journal.Entry) -> None:
        kind, place = entry.kind, location(index, len(data))
        self.names.learn(entry)
        if kind == journal.IDENTITY:
            self.secret = entry.details[1]
        elif kind == journal.DECLARED:
            self._declared(entry)
        elif kind == journal.NOTED:
            self.notes[entry.queue] = entry.details
        elif kind == journal.DROPPED:
            self._dropped(self.queues.pop(entry.queue))
        elif kind == journal.RESTATED:
            self._restated(entry.key, place)
        else:
            if kind in _NEW:
                self.last_key = max(self.last_key, entry.key)
            elif kind == journal.LEASED:
                self.latest = max(self.latest, entry.at)
            queue = self.queues[entry.queue]
            journal.replay(queue, entry, place, self._by_name.__getitem__)
            if self._by_key is not None and kind in _NEW:
                record = lines.find(queue, entry.key) or queue.schedule.find(entry.key)
                if record is not None:
                    self._by_key[entry.key] = record

    def _declare(self, number: int, name: str, settings: Settings) -> Queue:
        self.last_number = max(self.last_number, number)
        queue = self._by_name.get(name)
        if queue is None:
            queue = self.queues[number] = self._by_name[name] = Queue(name, settings)
        queue.settings = settings
        return queue

    def _declared(self, entry: journal.Entry) -> None:
        name, settings, dead = entry.details
        queue = self._declare(entry.queue, name, msgspec.convert(settings, Settings))
        if dead is not None:
            self._set_dead_letters(name, dead)
        else:
            queue.keep_dead_letters()

    def _set_dead_letters(self, source: str, target: str) -> None:
        self._by_name[source].send_dead_letters_to(self._by_name[target])

    def _dropped(self, queue: Queue) -> None:
        del self._by_name[queue.name]
        queue.keep_dead_letters()
        for source in list(queue.sources):
            source.keep_dead_letters()

    def _restated(self, key: int, place: int) -> None:
        if self._by_key is None:
            self._by_key = {record.key: record for record in all_records(self.queues.values())}
        if key in self._by_key:
            self._by_key[key].body = place


def all_records(queues: Iterable[Queue]) -> Iterator[Record]:
    """Yield every message of these queues, in any state."""
    for queue in queues:
        yield from waiting(queue)
        yield from (record for _, _, record in queue.schedule)
        yield from (lease.record for lease in queue.leases)


def recover(store: DurableStore) -> int:
    """Rebuild the state of the store; return the index of the snapshot it started from."""
    state = read_snapshot(store.disk, store.path)
    if state is not None:
        _refuse_foreign_snapshot(store, state)
    elif store.log.first_index > 0:
        raise MailboxStorageError(
            f"the snapshot of the store {store.path} is missing or damaged, and its log no "
            "longer goes back to the beginning; restore the store from a backup"
        )
    replay = Replay(state, store.path)
    replay.frames(store.log.frames(replay.start))
    _take_over(store, replay)
    if state is not None and state.oldest < store.log.first_index:
        _refuse_missing_bodies(store, replay)
    if replay.misfits:
        logger.error(
            "skipped entries about messages that a repair could not save",
            store=store.path,
            skipped=len(replay.misfits),
        )
    if isinstance(store.clock, WallClock):
        store.time = Timekeeper(store.disk, store.path, store.clock)
        store.time.go_on(max(replay.latest, store.last_key << 1), store.log.last_time_ns)
    if store.log.next_index == 0:
        identity = (store.prefix, store._secret)
        store.log.append(journal.entry_bytes(journal.IDENTITY, 0, 0, details=identity))
    return replay.start


def refuse_foreign_settings(store: DurableStore, settings: StoreSettings) -> None:
    misfit = settings_misfit(settings, store.log.log_id.hex())
    if misfit is not None and store.log.next_index > 0:
        raise MailboxStorageError(
            f"{store.path}/{SETTINGS_FILE} {misfit}; put the right one back, or delete it and "
            "open the store with the segment_bytes and history that it should have"
        )


def _refuse_foreign_snapshot(store: DurableStore, state: snapshot.StoreState) -> None:
    log = store.log
    misfit = snapshot_misfit(state, log.log_id.hex(), log.first_index, log.next_index)
    if misfit is not None:
        raise MailboxStorageError(
            f"the snapshot of the store {store.path} {misfit}; put the right files back, or "
            f"run 'pillarbox log repair {store.path}' to see what can be saved"
        )


def _refuse_missing_bodies(store: DurableStore, replay: Replay) -> None:
    records = all_records(replay.queues.values())
    oldest = min((index_of(each.body) for each in records), default=NEVER)
    if oldest < store.log.first_index:
        raise MailboxStorageError(
            f"the log of the store {store.path} begins at entry {store.log.first_index}, and "
            f"messages lie in it from {oldest} on: its first segments are missing; put them "
            f"back, or run 'pillarbox log repair {store.path}'"
        )


def _take_over(store: DurableStore, replay: Replay) -> None:
    """Move the queues into the store, in the order of their creation."""
    if replay.names.prefix is not None:
        store.prefix, store._secret = replay.names.prefix, replay.secret
    store.last_key, store.last_number = replay.last_key, replay.last_number
    for number, queue in sorted(replay.queues.items()):
        session = store.sessions[queue.name] = DurableQueueSession(store, queue, number)
        session.notes = replay.notes.get(number, {})
        session.plain = False
    for source in store.sessions.values():
        dead = source.queue.dead_letters
        source.dead = None if dead is None else store.sessions[dead.name]
