"""What opening a store does: the entries of its log happen once more, in C loops where they can.

Only `DurableStore` calls it, before anybody else has the store. Where a repair left a gap,
entries that speak of what was lost are skipped and counted; anywhere else they are an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from pillarbox.core import apply, journal, lines
from pillarbox.core.errors import MailboxStorageError
from pillarbox.core.queue import Queue, Record, Settings, waiting
from pillarbox.log import Frame
from pillarbox.mailbox.location import location, locations

if TYPE_CHECKING:
    from pillarbox.mailbox.durable_store import DurableStore
    from pillarbox.mailbox.queue_session import QueueSession
    from pillarbox.mailbox.store import Store


_head = journal.HEAD.unpack_from


class Replay:
    """Lets the entries of a log happen to a store once more."""

    def __init__(self, store: DurableStore, start: int) -> None:
        self._store = store
        self._next = start
        self._has_gaps = False
        self.skipped = 0
        self._by_number = {
            store.number_of(session): session.queue for session in store.sessions.values()
        }
        self._by_key: dict[int, Record] | None = None  # made when a message was restated
        self.latest = 0

    def frame(self, frame: Frame) -> None:
        """One group of entries; most often all are plain messages of one queue."""
        self._has_gaps = self._has_gaps or frame.first_index != self._next
        self._next = frame.end_index
        first, entries = frame.first_index, frame.records
        kinds, priorities, _, queues, keys, _, _, details = zip(*map(_head, entries), strict=True)
        plain = kinds.count(journal.SENT) == len(kinds) and not any(details)
        if plain and len(set(queues)) == len(set(priorities)) == 1 and queues[0] in self._by_number:
            places = locations(first, map(len, entries))
            records = list(map(Record, keys, places, priorities))
            apply.append_plain(self._by_number[queues[0]], records, priorities[0])
            if self._by_key is not None:
                self._by_key.update(zip(keys, records, strict=True))
            self._store.last_key = max(self._store.last_key, *keys)
        else:
            for index, data in enumerate(entries, first):
                self._one(index, data)

    def _one(self, index: int, data: bytes) -> None:
        """One entry. After a gap, what no longer fits is skipped."""
        entry = journal.decode(data)
        try:
            self._entry(index, data, entry)
        except (journal.ReplayError, KeyError) as error:
            if not self._has_gaps:
                raise MailboxStorageError(
                    f"entry {index} of the store {self._store.path} does not fit what came before "
                    f"it ({error}); please report this"
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
            self._session(entry).notes = entry.details
        elif entry.kind == journal.DROPPED:
            self._store._drop(self._session(entry))
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
            if self._by_key is not None and entry.kind in (journal.SENT, journal.SCHEDULED):
                record = lines.find(queue, entry.key) or queue.schedule.find(entry.key)
                if record is not None:
                    self._by_key[entry.key] = record

    def _find(self, name: str) -> Queue:
        return self._store.sessions[name].queue

    def _declared(self, entry: journal.Entry) -> None:
        name, settings, dead = entry.details
        session = self._store._known_session(entry.queue, name, msgspec.convert(settings, Settings))
        self._by_number[entry.queue] = session.queue
        if dead is not None:
            self._store._restore_dead_letters(name, dead)
        else:
            session.queue.keep_dead_letters()
            session.dead = None

    def _session(self, entry: journal.Entry) -> QueueSession:
        return self._store.sessions[self._by_number[entry.queue].name]

    def _restated(self, key: int, place: int) -> None:
        if self._by_key is None:
            self._by_key = {record.key: record for record in all_records(self._store)}
        if key in self._by_key:
            self._by_key[key].body = place


def all_records(store: Store) -> Iterator[Record]:
    """Every message of a store, whatever its state."""
    for session in store.sessions.values():
        yield from waiting(session.queue)
        yield from (record for _, _, record in session.queue.schedule)
        yield from (lease.record for lease in session.queue.leases)
