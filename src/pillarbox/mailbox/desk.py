"""Where a queue meets its callers: a lock, a clock and the receivers that wait.

Everything here is bytes; mailboxes and the broker put their own faces on it. Each verb is
one step under the store's lock: settle what is due, decide, apply, serve those who wait.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from itertools import compress, islice, repeat
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

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
from pillarbox.core.queue import NEVER, Extra, Lease, Queue, Record, first, oldest_key, page
from pillarbox.mailbox.protocol import State
from pillarbox.mailbox.totals import Totals
from pillarbox.mailbox.waiters import Owner, ThreadWaiter, Waiter

if TYPE_CHECKING:
    from pillarbox.mailbox.store import Store

SLICE = 50  # messages that one step may touch, so that nobody waits for long
_FREED_AT_ONCE_MAX = 10_000
_PAUSE_SECONDS = 0.000_1
E = TypeVar("E", bound=Event)
_DEATHS = (Died, DiedInLine)


class Written(Protocol):
    """What was put on record, and is confirmed sooner or later."""

    def wait(self, timeout: float | None = None) -> int: ...
    def __await__(self) -> Generator[Any, None, int]: ...


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

    def send(
        self,
        bodies: Sequence[Any],
        priority: int = 0,
        delay: int = 0,
        attributes: dict[str, str] | None = None,
        extra: Callable[[], Extra] | None = None,
        *,
        due: int = 0,
    ) -> Sequence[int]:
        """All in one step, or none: now, after a delay, or when they are due. Their keys."""
        queue = self.queue
        store = self.store
        with self._lock:
            now = self._now()
            if now >= queue.wake_at:
                self.settle(now)
            start = now >> 1
            if start <= store.last_key:
                start = store.last_key + 1
            # `range` makes ints of the small form, which arithmetic does not.
            keys = range(start, start + len(bodies))
            records = _records(keys, bodies, priority, attributes, extra)
            fresh = decide.send(queue, records, now)
            if delay:
                due = now + delay
            event = Scheduled(fresh, due) if due else Sent(fresh)
            written = self._write([event] if fresh else [])
            store.last_key = keys.stop - 1
            if due:
                apply.scheduled(queue, fresh, due)
            elif extra is None:
                apply.lined_up(queue, fresh, priority)
            else:
                apply.sent(queue, fresh)
            if self.waiters:
                self.serve(now)
            accepted: Sequence[int] = keys
            if len(fresh) < len(records):
                accepted = [decide.original(queue, record, now) for record in records]
        self._confirm(written)
        return accepted

    def send_one(self, body: Any) -> int:
        """`send` for one message that is nothing but its body; there must be no capacity."""
        queue, store = self.queue, self.store
        with self._lock:
            now = self._now()
            if now >= queue.wake_at:
                self.settle(now)
            key = now >> 1
            if key <= store.last_key:
                key = store.last_key + 1
            store.last_key = key
            self.totals.sent += 1
            apply.lined_up(queue, (Record(key, body),), 0)
            if self.waiters:
                self.serve(now)
        return key

    def receive(self, owner: Owner, count: int, timeout: int, wait: int) -> list[Lease]:
        """Lease what is there; else block until something is, or the time is up."""
        queue = self.queue
        with self._lock:
            now = self._now()
            if now >= queue.wake_at or queue.sources:
                self._settle_all(now, count)
            leases = self._next(now, count, timeout) if queue.mask else []
            if leases:
                return leases
            if not wait or owner.closed:
                return []
            waiter = ThreadWaiter(owner, count, timeout)
            self._park(waiter)
        try:
            self.store.clock.wait(waiter.gate, now + wait)
            return self.leave(waiter)
        except BaseException:  # interrupted: nobody will see what it was given
            self.give_up(waiter)
            raise

    def _next(self, now: int, count: int, timeout: int) -> list[Lease]:
        """Lease from the head of the line; as SQS does it, what has no deliveries left dies."""
        settings = self.queue.settings
        if self.dead is None or not settings.dead_on_receive or not settings.max_deliveries:
            return self._take(now, count, timeout)
        events = decide.receive_or_bury(self.queue, count, timeout, now)
        self._write(events, lazy=True)
        for event in events:
            apply.apply(self.queue, event)
        self._announce(events, now)
        return [lease for event in events if type(event) is Leased for lease in event.leases]

    def _take(self, now: int, count: int, timeout: int) -> list[Lease]:
        """Lease from the head of the line."""
        queue = self.queue
        leases = decide.receive(queue, count, timeout, now)
        self._write([Leased(leases)], lazy=True)
        apply.leased(queue, leases)
        if self.dead is not None and self.dead.waiters:
            self.store.wake(self, queue.wake_at)
        return leases

    def enter(self, waiter: Waiter) -> None:
        """Let this receiver wait; it is served at once if there is something by now."""
        with self._lock:
            self._park(waiter)
            now = self._now()
            self._settle_all(now)
            self.serve(now)
            if waiter.owner.closed:
                self._dismiss(waiter)

    def _park(self, waiter: Waiter) -> None:
        self.waiters[waiter] = None
        for queue in (self.queue, *self.queue.sources):
            self.store.wake(self.store.desks[queue.name], queue.wake_at)

    def leave(self, waiter: Waiter) -> list[Lease]:
        """A waiter that was woken, or whose time is up, takes what it was given."""
        with self._lock:
            try:
                if waiter.leases is None:  # its time is up, and perhaps that of a message, too
                    self._settle_all(self._now())
            finally:
                self.waiters.pop(waiter, None)
            return waiter.leases or []

    def give_up(self, waiter: Waiter) -> None:
        """A waiter is gone: what it was given goes back to the front, uncounted."""
        with self._lock:
            self.waiters.pop(waiter, None)
            self._return_unseen(waiter, self._now())

    def wake_all(self, owner: Owner) -> None:
        """Every receive parked by this owner ends empty-handed."""
        with self._lock:
            for waiter in [waiter for waiter in self.waiters if waiter.owner is owner]:
                self._dismiss(waiter)

    def end(self) -> None:
        """The queue is deleted: whoever waits goes empty-handed, and nothing more happens."""
        gone = _contents(self.queue)
        apply.purged(self.queue)
        _free(gone)
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

    def acknowledge(self, leases: Sequence[Lease]) -> list[bool]:
        queue = self.queue
        with self._lock:
            now = self._now()
            if now >= queue.wake_at:
                self.settle(now)
            answers = decide.live(leases, now)
            living = list(compress(leases, answers))
            written = self._write([Acknowledged(living)])
            apply.acknowledged(queue, living)
            if self.waiters:
                self.serve(now)
        self._confirm(written)
        return answers

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

    def purge(self) -> int:
        with self._lock:
            self._settle_all(self._now())
            count = self.queue.size
            written = self._write([Purged()])
            gone = _contents(self.queue)
            apply.purged(self.queue)
        _free(gone)
        self._confirm(written)
        return count

    def step(self, what: Callable[[Queue, int], list[E]]) -> list[E]:
        """Settle what is due, then let happen what `what` decides, all in one step."""
        with self._lock:
            now = self._now()
            self._settle_all(now)
            events = what(self.queue, now)
            written = self._write(events)
            for event in events:
                apply.apply(self.queue, event)
            self.serve(now)
        self._confirm(written)
        return events

    def remove(self, keys: Collection[int]) -> int:
        (found,) = self.step(lambda queue, now: [decide.remove(queue, keys)])
        return len(found.keys)

    def redrive(self, keys: Collection[int], to: Desk) -> int:
        """Move waiting messages to another queue of the store."""
        with self._lock:
            now = self._now()
            self._settle_all(now)
            event = decide.redrive(self.queue, keys, to.queue, now)
            written = self._write([event])
            apply.apply(self.queue, event)
            to.serve(now)
        self._confirm(written)
        return len(event.records)

    def look(self, state: str, count: int | None, skip: int = 0) -> list[tuple[Record, int]]:
        """Messages in a state, in order, and how often each was delivered; all stays as it is."""
        queue = self.queue
        end = None if count is None else skip + count
        with self._lock:
            self._catch_up(self._now())
            if state == "in_flight":
                leases = islice(queue.leases.soonest(), skip, end)
                return [(lease.record, lease.number) for lease in leases]
            if state == "ready":
                records = page(queue, skip, queue.ready if count is None else count)
            else:
                scheduled = (record for _, _, record in queue.schedule.soonest())
                records = list(islice(scheduled, skip, end))
            return [(record, record.deliveries) for record in records]

    def leases_by_key(self) -> None:
        """Have an index of what is in flight from now on: for those who ask by handle."""
        with self._lock:
            self.queue.leases.find(0)

    def glance(self, count: int) -> tuple[list[Record], int]:
        """The messages that would be delivered next, and how many are in flight."""
        with self._lock:
            return first(self.queue, count), self.queue.in_flight

    def pick(self, keys: Iterable[int]) -> list[tuple[Record, int]]:
        """Those of these messages that are ready, and how often each was delivered."""
        with self._lock:
            found = (lines.find(self.queue, key) for key in keys)
            return [(record, record.deliveries) for record in found if record is not None]

    def find(self, key: int) -> tuple[Record, int, State] | None:
        """A message by its key, how often it was delivered, and its state."""
        queue = self.queue
        with self._lock:
            if (lease := queue.leases.find(key)) is not None:
                held = lease.deadline > self._now()  # else it is back, once somebody has a look
                return lease.record, lease.number, "in_flight" if held else "ready"
            if (timed := queue.schedule.find(key)) is not None:
                return timed, timed.deliveries, "scheduled"
            ready = lines.find(queue, key)
            return None if ready is None else (ready, ready.deliveries, "ready")

    def counts(self) -> tuple[int, int, int, int, int | None]:
        """Ready, scheduled, in flight, dead, and the age of the oldest in line."""
        queue = self.queue
        with self._lock:
            now = self._now()
            self._catch_up(now)
            oldest = oldest_key(queue)
            age = None if oldest is None else max(0, now - (oldest << 1))
            dead = queue.dead_letters.size if queue.dead_letters is not None else 0
            return queue.ready, queue.scheduled, queue.in_flight, dead, age

    def settle(self, now: int) -> None:
        """Let the first that is due happen, and serve those who waited for it. Needs the lock.

        If more is due, `wake_at` stays in the past, and the next operation goes on.
        """
        events = decide.tick(self.queue, now, SLICE)
        self._write(events, lazy=True)
        apply.settled(self.queue, events)
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

    def _settle_leases(
        self, leases: Sequence[Lease], what: Callable[[Iterable[Lease], int], Iterable[Event]]
    ) -> list[bool]:
        with self._lock:
            now = self._now()
            if now >= self.queue.wake_at:
                self.settle(now)
            answers = decide.live(leases, now)
            events = list(what(compress(leases, answers), now))
            written = self._write(events)
            for event in events:
                apply.apply(self.queue, event)
            self.serve(now)
            self._announce(events, now)
        self._confirm(written)
        return answers

    def _announce(self, events: Iterable[Event], now: int) -> None:
        """Dead letters may be what somebody waits for."""
        if self.dead is not None and any(type(event) in _DEATHS for event in events):
            self.dead.serve(now)

    def serve(self, now: int) -> None:
        """Give what is ready to those who wait, first come, first served. Needs the lock."""
        queue = self.queue
        while self.waiters and queue.mask:
            waiter, _ = self.waiters.popitem(last=False)
            waiter.leases = self._next(now, waiter.count, waiter.timeout) or None
            if waiter.leases is None:  # whatever was in line has died
                self.waiters[waiter] = None
                self.waiters.move_to_end(waiter, last=False)
            elif not waiter.wake():
                self._return_unseen(waiter, now)
        if self.watched:
            self.store.wake(self, queue.wake_at)

    def _return_unseen(self, waiter: Waiter, now: int) -> None:
        leases, waiter.leases = waiter.leases or [], []
        living = list(compress(leases, decide.live(leases, now)))
        events = [Released(lease, to_front=True) for lease in reversed(living)]
        self._write(events, lazy=True)
        for event in events:
            apply.apply(self.queue, event)
        self.serve(now)

    def bodies(self, records: Sequence[Record], *, wait: bool = True) -> list[bytes | None]:
        """The bodies of these messages, None for one that was lost; in memory all are at hand.

        Unless it may `wait` for the disk: BlockingIOError if it had to.
        """
        return [record.body for record in records]

    def _write(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        """Put events on record before they are applied; in memory there is none. Needs the lock."""
        self.totals.count(events)
        return None

    def _confirm(self, written: Written | None) -> None:
        """Return once what was written can't be lost any more."""
        if written is not None:
            self.store.confirm(written)


def _contents(queue: Queue) -> list[deque[Any]]:
    """What a queue holds, if it is so much that to free it at once would hold others up."""
    return [deque(lane) for lane in queue.lanes.values() if len(lane) > _FREED_AT_ONCE_MAX]


def _free(gone: list[deque[Any]]) -> None:
    """Free these messages bit by bit, beside everything else."""
    if gone:
        Thread(target=_free_slowly, args=[gone], name="pillarbox-free", daemon=True).start()


def _free_slowly(gone: list[deque[Any]]) -> None:
    for each in gone:
        while each:
            for _ in range(min(len(each), SLICE)):
                each.popleft()
            sleep(_PAUSE_SECONDS)


def _records(
    keys: range,
    bodies: Sequence[Any],
    priority: int,
    attributes: dict[str, str] | None,
    extra: Callable[[], Extra] | None,
) -> list[Record]:
    """New messages that differ in nothing but their bodies."""
    if len(keys) == 1:
        special = extra() if extra is not None else None
        return [Record(keys[0], bodies[0], priority, 0, attributes, special)]
    if extra is None and not priority and attributes is None:
        return list(map(Record, keys, bodies))  # in C: a batch is no loop
    extras = (extra() for _ in keys) if extra is not None else repeat(None)
    alike = repeat(priority), repeat(0), repeat(attributes), extras
    return list(map(Record, keys, bodies, *alike))
