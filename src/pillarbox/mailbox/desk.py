"""Where a queue meets its callers: a lock, a clock and the receivers that wait.

Everything here is bytes; mailboxes and the broker put their own faces on it. Each verb is
one step under the store's lock: settle what is due, decide, apply, serve those who wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from pillarbox.core import apply, decide, lines
from pillarbox.core.errors import MailboxClosedError
from pillarbox.core.events import (
    Acknowledged,
    Died,
    DiedInLine,
    Event,
    Extended,
    Leased,
    Purged,
    Released,
    Scheduled,
    Sent,
)
from pillarbox.core.finish import finish
from pillarbox.core.queue import (
    NEVER,
    Extra,
    Lease,
    Queue,
    Record,
    first,
    new_records,
    oldest_key,
    page,
)
from pillarbox.mailbox.freeing import free_slowly
from pillarbox.mailbox.locked import Written, locked
from pillarbox.mailbox.protocol import State
from pillarbox.mailbox.totals import Totals
from pillarbox.mailbox.waiters import Owner, ThreadWaiter, Waiter

if TYPE_CHECKING:
    from pillarbox.mailbox.store import Store

SLICE = 20  # messages that one step may touch, so that nobody waits for long
E = TypeVar("E", bound=Event)
_DEATHS = (Died, DiedInLine)


class Desk:
    """One queue of a store."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self.store = store
        self.queue = queue
        self.dead: Desk | None = None
        self.totals = Totals(queue)
        self.notes: dict[str, Any] = {}  # what others keep about the queue; changed by `note`
        # Nothing but the clock needs to be asked, and what comes back goes to the end of the line.
        self.plain = queue.settings.capacity is None and queue.settings.redelivery == "tail"
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.alarm_at = NEVER  # when the store's pulse looks after it
        # Told what came due, and when that was noticed; under the lock, so it must be brief.
        self.told: Callable[[Sequence[Event], int], None] | None = None
        self._lock = store.lock
        self._now = store.clock.now

    @property
    def watched(self) -> bool:
        """Whether someone waits for what a timer of this queue would bring."""
        return bool(self.waiters) or (self.dead is not None and bool(self.dead.waiters))

    def note(self, notes: dict[str, Any]) -> None:
        """Keep these notes about the queue instead of those it has. Needs the lock."""
        self.notes = notes

    def configure(self, **changes: Any) -> None:
        self.queue.settings = msgspec.structs.replace(self.queue.settings, **changes)

    @locked
    def send(
        self,
        bodies: Sequence[Any],
        priority: int = 0,
        delay: int = 0,
        attributes: dict[str, str] | None = None,
        extra: Callable[[], Extra] | None = None,
        *,
        due: int = 0,
    ) -> tuple[Written | None, Sequence[int]]:
        """All in one step, or none: now, after a delay, or when they are due. Their keys."""
        queue = self.queue
        now = self._now()
        if now >= queue.wake_at:
            self.settle(now)
        keys = self.store.new_keys(now, len(bodies))
        records = new_records(keys, bodies, priority, attributes, extra)
        fresh = decide.send(queue, records, now)
        if delay:
            due = now + delay
        event = Scheduled(fresh, due) if due else Sent(fresh)
        written = self._happen([event] if fresh else [])
        if self.waiters:
            self.serve(now)
        accepted: Sequence[int] = keys
        if len(fresh) < len(records):
            accepted = [decide.original(queue, record, now) for record in records]
        return written, accepted

    @locked
    def send_one(self, body: Any) -> tuple[Written | None, int]:
        """`send` for one message that is nothing but its body; there must be no capacity."""
        now = self._now()
        if now >= self.queue.wake_at:
            self.settle(now)
        key = self.store.new_keys(now, 1)[0]
        written = self._happen([Sent([Record(key, body)])])
        if self.waiters:
            self.serve(now)
        return written, key

    def receive(self, owner: Owner, count: int, timeout: int, wait: int) -> list[Lease]:
        """Lease what is there; else block until something is, or the time is up."""
        waiter = ThreadWaiter(owner, count, timeout) if wait else None
        try:
            leases, now = self._receive(owner, count, timeout, waiter)
            if leases is None:
                assert waiter is not None, "only a waiter is parked"
                self.store.clock.wait(waiter.gate, now + wait)
                leases = self.leave(waiter)
            return leases
        except BaseException:  # interrupted: nobody will see what it was given
            if waiter is not None:
                self.give_up(waiter)
            raise

    @locked
    def _receive(
        self, owner: Owner, count: int, timeout: int, waiter: Waiter | None
    ) -> tuple[None, tuple[list[Lease] | None, int]]:
        """Lease what is there, and say when; None if the waiter has to wait for it."""
        queue = self.queue
        now = self._now()
        if now >= queue.wake_at or queue.sources:
            self._settle_all(now, count)
        leases = self._next(now, count, timeout) if queue.mask else []
        if leases or waiter is None or owner.closed:
            return None, (leases, now)
        self._park(waiter)
        return None, (None, now)

    def _next(self, now: int, count: int, timeout: int) -> list[Lease]:
        """Lease from the head of the line; as SQS does it, what has no deliveries left dies."""
        events = decide.deliver(self.queue, count, timeout, now)
        self._happen(events, lazy=True)
        if self.dead is not None:
            self._announce(events, now)
            if self.dead.waiters:
                self.store.wake(self, self.queue.wake_at)
        return [lease for event in events if type(event) is Leased for lease in event.leases]

    @locked
    def enter(self, waiter: Waiter) -> tuple[None, None]:
        """Let this receiver wait; it is served at once if there is something by now."""
        self._park(waiter)
        now = self._now()
        self._settle_all(now)
        self.serve(now)
        if waiter.owner.closed:
            self._dismiss(waiter)
        return None, None

    def _park(self, waiter: Waiter) -> None:
        self.waiters[waiter] = None
        for queue in (self.queue, *self.queue.sources):
            self.store.wake(self.store.desks[queue.name], queue.wake_at)

    @locked
    def leave(self, waiter: Waiter) -> tuple[None, list[Lease]]:
        """A waiter that was woken, or whose time is up, takes what it was given."""
        try:
            if waiter.leases is None:  # its time is up, and perhaps that of a message, too
                self._settle_all(self._now())
        finally:
            self.waiters.pop(waiter, None)
        return None, waiter.leases or []

    @locked
    def give_up(self, waiter: Waiter) -> tuple[None, None]:
        """A waiter is gone: what it was given goes back to the front, uncounted."""
        self.waiters.pop(waiter, None)
        self._return_unseen(waiter, self._now())
        return None, None

    @locked
    def wake_all(self, owner: Owner) -> tuple[None, None]:
        """Every receive parked by this owner ends empty-handed."""
        for waiter in [waiter for waiter in self.waiters if waiter.owner is owner]:
            self._dismiss(waiter)
        return None, None

    def end(self) -> None:
        """The queue is deleted: whoever waits goes empty-handed, and nothing more happens."""
        free_slowly(self.queue.lanes.values())
        apply.purged(self.queue)
        for waiter in list(self.waiters):
            self._dismiss(waiter)
        self._write = self._refuse  # type: ignore[method-assign]
        self.send_one = self._refuse_one  # type: ignore[method-assign]

    def _refuse(self, events: Sequence[Event], *, lazy: bool = False) -> None:
        if events:
            raise MailboxClosedError(f"queue {self.queue.name!r} was deleted")

    def _refuse_one(self, body: Any) -> NoReturn:
        raise MailboxClosedError(f"queue {self.queue.name!r} was deleted")

    def _dismiss(self, waiter: Waiter) -> None:
        if self.waiters.pop(waiter, waiter) is None:
            waiter.leases = []
            waiter.wake()

    @locked
    def acknowledge(self, leases: Sequence[Lease]) -> tuple[Written | None, list[bool]]:
        now = self._now()
        if now >= self.queue.wake_at:
            self.settle(now)
        answers = decide.live(leases, now)
        written = self._happen([Acknowledged(list(compress(leases, answers)))])
        if self.waiters:
            self.serve(now)
        return written, answers

    def nack(self, leases: Sequence[Lease], delay: int) -> list[bool]:
        return self._settle_leases(
            leases, lambda living, now: decide.nack(self.queue, living, delay, now)
        )

    def release(self, leases: Sequence[Lease], *, to_front: bool = False) -> list[bool]:
        return self._settle_leases(
            leases, lambda living, now: [Released(lease, to_front) for lease in living]
        )

    def extend(self, leases: Sequence[Lease], timeout: int) -> list[bool]:
        return self._settle_leases(
            leases,
            lambda living, now: [Extended(lease, now + timeout, timeout) for lease in living],
        )

    def reject(self, leases: Sequence[Lease], reason: str) -> list[bool]:
        return self._settle_leases(
            leases, lambda living, now: decide.reject(self.queue, living, reason, now)
        )

    @locked
    def purge(self) -> tuple[Written | None, int]:
        self._settle_all(self._now())
        count = self.queue.size
        free_slowly(self.queue.lanes.values())
        return self._happen([Purged()]), count

    @locked
    def step(self, what: Callable[[Queue, int], list[E]]) -> tuple[Written | None, list[E]]:
        """Settle what is due, then let happen what `what` decides, all in one step."""
        now = self._now()
        self._settle_all(now)
        events = what(self.queue, now)
        written = self._happen(events)
        self.serve(now)
        return written, events

    def remove(self, keys: Collection[int]) -> int:
        (found,) = self.step(lambda queue, now: [decide.remove(queue, keys)])
        return len(found.keys)

    @locked
    def redrive(self, keys: Collection[int], to: Desk) -> tuple[Written | None, int]:
        """Move waiting messages to another queue of the store."""
        now = self._now()
        self._settle_all(now)
        event = decide.redrive(self.queue, keys, to.queue, now)
        written = self._happen([event])
        to.serve(now)
        return written, len(event.records)

    @locked
    def look(
        self, state: str, count: int | None, skip: int = 0
    ) -> tuple[None, list[tuple[Record, int]]]:
        """Messages in a state, in order, and how often each was delivered; all stays as it is."""
        queue = self.queue
        end = None if count is None else skip + count
        self._catch_up(self._now())
        if state == "in_flight":
            leases = islice(queue.leases.soonest(), skip, end)
            return None, [(lease.record, lease.number) for lease in leases]
        if state == "ready":
            records = page(queue, skip, queue.ready if count is None else count)
        else:
            scheduled = (record for _, _, record in queue.schedule.soonest())
            records = list(islice(scheduled, skip, end))
        return None, [(record, record.deliveries) for record in records]

    @locked
    def leases_by_key(self) -> tuple[None, None]:
        """Have an index of what is in flight from now on: for those who ask by handle."""
        self.queue.leases.find(0)
        return None, None

    @locked
    def glance(self, count: int) -> tuple[None, tuple[list[Record], int]]:
        """The messages that would be delivered next, and how many are in flight."""
        return None, (first(self.queue, count), self.queue.in_flight)

    @locked
    def pick(self, keys: Iterable[int]) -> tuple[None, list[tuple[Record, int]]]:
        """Those of these messages that are ready, and how often each was delivered."""
        found = (lines.find(self.queue, key) for key in keys)
        return None, [(record, record.deliveries) for record in found if record is not None]

    @locked
    def find(self, key: int) -> tuple[None, tuple[Record, int, State] | None]:
        """A message by its key, how often it was delivered, and its state."""
        queue = self.queue
        if (lease := queue.leases.find(key)) is not None:
            held = lease.deadline > self._now()  # else it is back, once somebody has a look
            return None, (lease.record, lease.number, "in_flight" if held else "ready")
        if (timed := queue.schedule.find(key)) is not None:
            return None, (timed, timed.deliveries, "scheduled")
        ready = lines.find(queue, key)
        return None, None if ready is None else (ready, ready.deliveries, "ready")

    @locked
    def counts(self) -> tuple[None, tuple[int, int, int, int, int | None]]:
        """Ready, scheduled, in flight, dead, and the age of the oldest in line."""
        queue = self.queue
        now = self._now()
        self._catch_up(now)
        oldest = oldest_key(queue)
        age = None if oldest is None else max(0, now - (oldest << 1))
        dead = queue.dead_letters.size if queue.dead_letters is not None else 0
        return None, (queue.ready, queue.scheduled, queue.in_flight, dead, age)

    def settle(self, now: int) -> None:
        """Let the first that is due happen, and serve those who waited for it. Needs the lock.

        If more is due, `wake_at` stays in the past, and the next operation goes on.
        """
        events = decide.tick(self.queue, now, SLICE)
        self._happen(events, lazy=True)
        apply.settled(self.queue, ())
        if self.told is not None:
            self.told(events, now)
        self.serve(now)
        self._announce(events, now)

    def _catch_up(self, now: int) -> None:
        """Let what is due happen for someone who only looks, and writes nothing by that."""
        self.store.looked_at = True
        try:
            self._settle_all(now, self.queue.size)
        finally:
            self.store.looked_at = False

    def _settle_all(self, now: int, wanted: int = 0) -> None:
        """Settle this queue and those it has dead letters from, until so many are ready.

        A broker's queues are settled a little at a time, so that none holds up the others.
        """
        queue = self.queue
        wanted = wanted if self.store.settles_all else 0
        for source in queue.sources:
            while now >= source.wake_at:
                self.store.desks[source.name].settle(now)
                if not self.store.settles_all:
                    break
        while now >= queue.wake_at:
            self.settle(now)
            if queue.ready >= wanted:
                break

    @locked
    def _settle_leases(
        self, leases: Sequence[Lease], what: Callable[[Iterable[Lease], int], Iterable[Event]]
    ) -> tuple[Written | None, list[bool]]:
        now = self._now()
        if now >= self.queue.wake_at:
            self.settle(now)
        answers = decide.live(leases, now)
        events = list(what(compress(leases, answers), now))
        written = self._happen(events)
        self.serve(now)
        self._announce(events, now)
        return written, answers

    def _announce(self, events: Iterable[Event], now: int) -> None:
        """Dead letters may be what somebody waits for."""
        if self.dead is not None and any(type(event) in _DEATHS for event in events):
            self.dead.serve(now)

    def serve(self, now: int) -> None:
        """Give what is ready to those who wait, first come, first served. Needs the lock."""
        queue = self.queue
        while self.waiters and queue.mask:
            waiter = next(iter(self.waiters))
            leases = self._next(now, waiter.count, waiter.timeout)
            if not leases:  # whatever was in line has died
                continue
            waiter.leases = leases
            del self.waiters[waiter]
            if not self._wake(waiter):
                self._return_unseen(waiter, now)
        if self.watched:
            self.store.wake(self, queue.wake_at)

    def _wake(self, waiter: Waiter) -> bool:
        try:
            return waiter.wake()
        except BaseException:  # interrupted, perhaps before it did
            waiter.wake()
            raise

    def _return_unseen(self, waiter: Waiter, now: int) -> None:
        leases, waiter.leases = waiter.leases or [], []
        living = list(compress(leases, decide.live(leases, now)))
        events = [Released(lease, to_front=True) for lease in reversed(living)]
        self._happen(events, lazy=True)
        self.serve(now)

    def bodies(self, records: Sequence[Record], *, wait: bool = True) -> list[bytes | None]:
        """The bodies of these messages, None for one that was lost; in memory all are at hand.

        Unless it may `wait` for the disk: BlockingIOError if it had to.
        """
        return [record.body for record in records]

    def _happen(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        """Put events on record and apply them, all of them whatever comes. Needs the lock."""
        written = self._write(events, lazy=lazy)
        done = 0
        try:
            for event in events:
                apply.apply(self.queue, event)
                done += 1
        except BaseException:  # a signal handler raised: what is on record has to happen
            self._finish(events[done:])
            raise
        return written

    def _finish(self, events: Sequence[Event]) -> None:
        try:
            for event in events:
                finish(self.queue, event)
        except BaseException:  # it raised once more
            self._finish(events)
            raise

    def _write(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        """Put events on record before they are applied; in memory there is none. Needs the lock."""
        self.totals.count(events)
        return None
