"""A queue on disk where it meets its callers: what happens is in the log before it happens.

The verbs are those of `Desk`; the quick ones for a single message take the same steps in the
same order, and tests hold them to it. A body stays in the log: a record has only its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pillarbox.core import apply, decide, journal
from pillarbox.core.errors import MailboxFullError
from pillarbox.core.events import (
    Acknowledged,
    Died,
    DiedInLine,
    Event,
    Leased,
    Purged,
    Removed,
    Scheduled,
    Sent,
)
from pillarbox.core.queue import Lease, Queue, Record
from pillarbox.mailbox.desk import Desk, Written
from pillarbox.mailbox.location import location

if TYPE_CHECKING:
    from pillarbox.mailbox.ledger import DurableStore

_NEW = (Sent, Scheduled)
_DEATHS = (Died, DiedInLine)
_LETS_GO = (Acknowledged, Removed, Purged, *_DEATHS)  # room for these is held back


class DurableDesk(Desk):
    """A queue whose events go into the store's log."""

    store: DurableStore

    def __init__(self, store: DurableStore, queue: Queue, number: int) -> None:
        super().__init__(store, queue)
        self.number = number

    def bodies(self, records: Sequence[Record], *, wait: bool = True) -> list[bytes | None]:
        return [self.store.body(record, wait=wait) for record in records]

    def _write(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        store = self.store
        if not events:  # a repetition is confirmed when what it repeats is
            return None if lazy else store.written
        entries: list[bytes] = []
        for event in events:
            entries += journal.encode(event, self.number)
        if not entries:
            return None
        if store.looked_at and not any(isinstance(event, Leased) for event in events):
            store.owe(entries, needed=any(isinstance(event, _DEATHS) for event in events))
            self.totals.count(events)
            return None
        first = events[0]  # new messages come alone
        if isinstance(first, _NEW):
            ticket = store.write(entries, lazy=lazy, urgent=False)
            store.keep(first.records, entries, ticket.first_index)
        elif lazy and not any(isinstance(event, _DEATHS) for event in events):
            store.write_if_room(entries)
            ticket = None
        else:
            keep_room = not any(isinstance(event, _LETS_GO) for event in events)
            leave = store.compactor.budget.comfortable if keep_room else 0
            ticket = store.write(entries, lazy=lazy, urgent=True, leave=leave)
            for event in events:
                if isinstance(event, Acknowledged):
                    store.forget(event.leases)
        self.totals.count(events)
        return ticket

    def send(self, *message: Any, **options: Any) -> Sequence[int]:
        try:
            return super().send(*message, **options)
        except MailboxFullError:
            if not self.store.reclaim():
                raise
        return super().send(*message, **options)

    # The hot path: `send`, `receive` and `acknowledge` for one plain message, with the same
    # steps in the same order (settle, write, apply, serve, confirm), and nothing made that is
    # not needed. Nobody else at work: what is written is not even put in a group.

    def send_one(self, body: bytes) -> int:
        queue, store = self.queue, self.store
        turn, leads, ticket = self._lock, False, None
        try:
            try:
                del turn.token[0]
            except IndexError:
                turn.wait()
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
                self.totals.sent += 1
                record = Record(key, location(index, len(entry)))
                store.keep_one(index, body)
                apply.lined_up(queue, (record,), 0)
                if self.waiters:
                    self.serve(now)
            finally:
                turn.give(None)
                if turn.line:
                    turn.make_way()
        finally:  # whatever happened, others wait for a leader to do its part
            if leads:
                store.sync()
        if ticket is not None:
            store.confirm(ticket)
        return key

    def receive_one(self, timeout: int) -> Lease | None:
        """Lease the next message, if that needs no more than a look at the line."""
        queue, turn = self.queue, self._lock
        if self.dead is not None or queue.sources:
            return None
        try:
            del turn.token[0]
        except IndexError:
            turn.wait()
        try:
            now = self._now()
            if now >= queue.wake_at:
                self.settle(now)
            if not queue.mask:
                return None
            leases = decide.receive(queue, 1, timeout, now)
            entry = journal.leased_entry(self.number, leases[0])
            store = self.store
            if store.syncs or store.lead(entry) is None:
                store.write_if_room((entry,))
            self.totals.received += 1
            apply.leased(queue, leases)
            return leases[0]
        finally:
            turn.give(None)
            if turn.line:
                turn.make_way()

    def acknowledge_one(self, lease: Lease) -> bool:
        queue, store = self.queue, self.store
        turn, leads, ticket = self._lock, False, None
        try:
            try:
                del turn.token[0]
            except IndexError:
                turn.wait()
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
                self.totals.deleted += 1
                apply.acknowledged(queue, (lease,))
                if self.waiters:
                    self.serve(now)
            finally:
                turn.give(None)
                if turn.line:
                    turn.make_way()
        finally:
            if leads:
                store.sync()
        if ticket is not None:
            store.confirm(ticket)
        return True

    def configure(self, **changes: Any) -> None:
        super().configure(**changes)
        self.store.declare(self)

    def note(self, notes: dict[str, Any]) -> None:
        entry = journal.entry_bytes(journal.NOTED, self.number, 0, details=notes)
        self.store.write([entry], lazy=True, urgent=True)
        super().note(notes)
