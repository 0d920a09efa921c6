"""The verbs of one queue, with the store's lock, the clock and the waiting receivers.

Bodies are bytes here: mailboxes and the broker encode and decode them. Each verb is one step under
the store's lock: settle what is due, decide, apply, serve waiting receivers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from itertools import compress, islice
from threading import Thread
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from pillarbox.core import apply, decide, lines
from pillarbox.core import events as e
from pillarbox.core.errors import MailboxClosedError
from pillarbox.core.lane import Lane
from pillarbox.core.queue import (
    Extra,
    Lease,
    Queue,
    Record,
    new_records,
    oldest_key,
    page,
)
from pillarbox.mailbox.protocol import State
from pillarbox.mailbox.queue_steps import QueueSteps, Written
from pillarbox.mailbox.waiters import Owner, ThreadWaiter, Waiter
from pillarbox.mutex import reentrant_call, short_pause

D = TypeVar("D", bound="QueueSession")
E = TypeVar("E", bound=e.Event)
P = ParamSpec("P")
R = TypeVar("R")

_FREED_AT_ONCE_MAX = 10_000
_FREED_IN_A_ROW = 150


def locked(
    verb: Callable[Concatenate[D, P], tuple[Written | None, R]],
) -> Callable[Concatenate[D, P], R]:
    """Run a verb as one step under the store's lock, then confirm what it wrote."""

    @wraps(verb)
    def run(session: D, *args: P.args, **options: P.kwargs) -> R:
        # In a signal handler that interrupted a sync: it can't confirm.
        if session.store.confirms_here:
            raise reentrant_call()
        written, answer = session._lock.run(verb, session, *args, **options)
        if written is not None:
            session.store.confirm(written)
        return answer

    return run  # type: ignore[return-value]  # `wraps` names the first argument


class QueueSession(QueueSteps):
    """One queue of a store."""

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
        """Send all messages or none, now, after `delay`, or at `due`; return their keys."""
        queue = self.queue
        now = self._now()
        if now >= queue.wake_at:
            self.settle(now)
        keys = self.store.new_keys(now, len(bodies))
        records = new_records(keys, bodies, priority, attributes, extra)
        fresh = decide.send(queue, records, now)
        if delay:
            due = now + delay
        event = e.Scheduled(fresh, due) if due else e.Sent(fresh)
        written = self._record_and_apply([event] if fresh else [])
        if self.waiters:
            self.serve(now)
        accepted: Sequence[int] = keys
        if len(fresh) < len(records):
            accepted = [decide.original(queue, record, now) for record in records]
        return written, accepted

    def receive(self, owner: Owner, count: int, timeout: int, wait: int) -> list[Lease]:
        """Lease ready messages; if there are none, block until there are or `wait` is over."""
        waiter = ThreadWaiter(owner, count, timeout) if wait else None
        try:
            leases, now = self._receive(owner, count, timeout, waiter)
            if leases is None:
                assert waiter is not None, "only a waiter is parked"
                self.store.clock.wait(waiter.gate, now + wait)
                leases = self.leave(waiter)
            return leases
        except BaseException:  # interrupted: return the messages it was given
            if waiter is not None:
                self.give_up(waiter)
            raise

    @locked
    def _receive(
        self, owner: Owner, count: int, timeout: int, waiter: Waiter | None
    ) -> tuple[None, tuple[list[Lease] | None, int]]:
        """Lease ready messages and return them with the time; None if the waiter was parked."""
        queue = self.queue
        now = self._now()
        if now >= queue.wake_at or queue.sources:
            self._settle_all(now, count)
        leases = self._next(now, count, timeout) if queue.mask else []
        if leases or waiter is None or owner.closed:
            return None, (leases, now)
        self._park(waiter)
        return None, (None, now)

    @locked
    def enter(self, waiter: Waiter) -> tuple[None, None]:
        """Park this receiver; serve it immediately if messages became ready."""
        self._park(waiter)
        now = self._now()
        self._settle_all(now)
        self.serve(now)
        if waiter.owner.closed:
            self._dismiss(waiter)
        return None, None

    @locked
    def leave(self, waiter: Waiter) -> tuple[None, list[Lease]]:
        """Unpark a waiter that was woken or timed out, and return the leases it was given."""
        try:
            if waiter.leases is None:  # timed out; a message may be due now, too
                self._settle_all(self._now())
        finally:
            self.waiters.pop(waiter, None)
        return None, waiter.leases or []

    @locked
    def give_up(self, waiter: Waiter) -> tuple[None, None]:
        """Remove a cancelled waiter; return its messages to the front, uncounted."""
        self.waiters.pop(waiter, None)
        self._return_unseen(waiter, self._now())
        return None, None

    @locked
    def wake_all(self, owner: Owner) -> tuple[None, None]:
        """End every waiting receive of this owner with an empty result."""
        for waiter in [waiter for waiter in self.waiters if waiter.owner is owner]:
            self._dismiss(waiter)
        return None, None

    def end(self) -> None:
        """Delete the queue: end waiting receives with an empty result, refuse writes and waits."""
        _free_in_background(self.queue.lanes.values())
        apply.purged(self.queue)
        for waiter in list(self.waiters):
            self._dismiss(waiter)
        self._write = self._refuse_events  # type: ignore[method-assign]
        self.send = self._park = self.configure = self._refuse  # type: ignore[method-assign]
        self.plain = False  # the hot path appends without `send`

    def _refuse_events(self, events: Sequence[e.Event], *, lazy: bool = False) -> None:
        if events:
            self._refuse()

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        raise MailboxClosedError(f"queue {self.queue.name!r} was deleted")

    @locked
    def acknowledge(self, leases: Sequence[Lease]) -> tuple[Written | None, list[bool]]:
        now = self._now()
        if now >= self.queue.wake_at:
            self.settle(now)
        answers = decide.live(leases, now)
        written = self._record_and_apply([e.Acknowledged(list(compress(leases, answers)))])
        if self.waiters:
            self.serve(now)
        return written, answers

    def nack(self, leases: Sequence[Lease], delay: int) -> list[bool]:
        return self._settle_leases(
            leases, lambda living, now: decide.nack(self.queue, living, delay, now)
        )

    def release(self, leases: Sequence[Lease], *, to_front: bool = False) -> list[bool]:
        return self._settle_leases(
            leases, lambda living, now: [e.Released(lease, to_front) for lease in living]
        )

    def extend(self, leases: Sequence[Lease], timeout: int) -> list[bool]:
        return self._settle_leases(
            leases,
            lambda living, now: [e.Extended(lease, now + timeout, timeout) for lease in living],
        )

    def reject(self, leases: Sequence[Lease], reason: str) -> list[bool]:
        return self._settle_leases(
            leases, lambda living, now: decide.reject(self.queue, living, reason, now)
        )

    @locked
    def purge(self) -> tuple[Written | None, int]:
        self._settle_all(self._now())
        count = self.queue.size
        _free_in_background(self.queue.lanes.values())
        return self._record_and_apply([e.Purged()]), count

    @locked
    def step(self, decision: Callable[[Queue, int], list[E]]) -> tuple[Written | None, list[E]]:
        """Settle what is due, then record and apply the events that `decision` returns."""
        now = self._now()
        self._settle_all(now)
        events = decision(self.queue, now)
        written = self._record_and_apply(events)
        self.serve(now)
        self._serve_dead_letters(events, now)
        return written, events

    def remove(self, keys: Collection[int]) -> int:
        (removed,) = self.step(lambda queue, now: [decide.remove(queue, keys)])
        return len(removed.keys)

    @locked
    def redrive(self, keys: Collection[int], to: QueueSession) -> tuple[Written | None, int]:
        """Move ready messages to the end of another queue of the store."""
        now = self._now()
        self._settle_all(now)
        at = max(now, (self.store.last_key + 1) << 1)  # keys may run ahead of the clock
        event = decide.redrive(self.queue, keys, to.queue, at)
        written = self._record_and_apply([event])
        to.serve(now)
        return written, len(event.records)

    @locked
    def look(
        self, state: str, count: int | None, skip: int = 0
    ) -> tuple[None, list[tuple[Record, int]]]:
        """Return messages in a state, in order, with their delivery counts; change nothing."""
        self._catch_up(self._now())
        return None, _in_state(self.queue, state, count, skip)

    @locked
    def leases_by_key(self) -> tuple[None, None]:
        """Build and keep an index of the leases, for lookups by receipt handle."""
        self.queue.leases.find(0)
        return None, None

    @locked
    def pick(self, keys: Iterable[int]) -> tuple[None, list[tuple[Record, int]]]:
        """Return those of these messages that are ready, with their delivery counts."""
        self._catch_up(self._now())
        found = (lines.find(self.queue, key) for key in keys)
        return None, [(record, record.deliveries) for record in found if record is not None]

    @locked
    def find(self, key: int) -> tuple[None, tuple[Record, int, State] | None]:
        """Return the message with this key, its delivery count and its state."""
        queue = self.queue
        if (lease := queue.leases.find(key)) is not None:
            held = lease.deadline > self._now()  # otherwise expired, but not settled yet
            return None, (lease.record, lease.number, "in_flight" if held else "ready")
        if (timed := queue.schedule.find(key)) is not None:
            return None, (timed, timed.deliveries, "scheduled")
        ready = lines.find(queue, key)
        return None, None if ready is None else (ready, ready.deliveries, "ready")

    @locked
    def counts(self) -> tuple[None, tuple[int, int, int, int, int | None]]:
        """Return the counts of ready, scheduled, in-flight and dead, and the age of the oldest."""
        queue, now = self.queue, self._now()
        self._catch_up(now)
        oldest = oldest_key(queue)
        age = None if oldest is None else max(0, now - (oldest << 1))
        dead = queue.dead_letters.size if queue.dead_letters is not None else 0
        return None, (queue.ready, queue.scheduled, queue.in_flight, dead, age)

    @locked
    def _settle_leases(
        self, leases: Sequence[Lease], decision: Callable[[Iterable[Lease], int], Iterable[e.Event]]
    ) -> tuple[Written | None, list[bool]]:
        now = self._now()
        if now >= self.queue.wake_at:
            self.settle(now)
        answers = decide.live(leases, now)
        events = list(decision(compress(leases, answers), now))
        written = self._record_and_apply(events)
        self.serve(now)
        self._serve_dead_letters(events, now)
        return written, answers


def _in_state(queue: Queue, state: str, count: int | None, skip: int) -> list[tuple[Record, int]]:
    """Return messages in a state, in order, with their delivery counts."""
    end = None if count is None else skip + count
    if state == "in_flight":
        leases = islice(queue.leases.soonest(), skip, end)
        return [(lease.record, lease.number) for lease in leases]
    if state == "ready":
        records = page(queue, skip, queue.ready if count is None else count)
    else:
        records = list(islice((each for _, _, each in queue.schedule.soonest()), skip, end))
    return [(record, record.deliveries) for record in records]


def _free_in_background(lanes: Iterable[Lane[Any]]) -> None:
    """Free the contents of long lanes in a thread, bit by bit, after they are cleared.

    Freeing millions of records at once would block other threads.
    """
    kept = [part for lane in lanes if len(lane) > _FREED_AT_ONCE_MAX for part in lane.parts]
    if kept:
        Thread(target=_free, args=[kept], name="pillarbox-free", daemon=True).start()


def _free(kept: list[deque[Any]]) -> None:
    for each in kept:
        while each:
            for _ in range(min(len(each), _FREED_IN_A_ROW)):
                each.popleft()
            short_pause()
