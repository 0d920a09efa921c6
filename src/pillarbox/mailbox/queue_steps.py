"""What happens to a queue under the lock of its store: every step that its verbs are made of.

Settle what is due, decide, put it on record, apply it, serve those who wait. `_lock` is held
by the caller of everything here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from pillarbox.core import apply, decide
from pillarbox.core.events import Died, DiedInLine, Event, Leased, Released
from pillarbox.core.finish import finish
from pillarbox.core.queue import NEVER, Lease, Queue, Record, body_of
from pillarbox.mailbox.totals import Totals
from pillarbox.mailbox.waiters import Waiter
from pillarbox.mutex import uninterrupted

if TYPE_CHECKING:
    from pillarbox.mailbox.queue_session import QueueSession
    from pillarbox.mailbox.store import Store


class Written(Protocol):
    """What was put on record, and is confirmed sooner or later."""

    def wait(self, timeout: float | None = None) -> int: ...
    def __await__(self) -> Generator[Any, None, int]: ...


SLICE = 20  # messages that one step may touch, so that nobody waits for long
_DEATHS = (Died, DiedInLine)


class QueueSteps:
    """One queue of a store, for whoever has the store's lock."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self.store = store
        self.queue = queue
        self.dead: QueueSession | None = None
        self.totals = Totals(queue)
        self.notes: dict[str, Any] = {}  # what others keep about the queue; changed by `note`
        # Nothing but the clock needs to be asked, and what comes back goes to the end of the line.
        self.plain = queue.settings.capacity is None and queue.settings.redelivery == "tail"
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.alarm_at = NEVER  # when the store's pulse looks after it
        # Told what came due, and when that was noticed; under the lock, so it must be brief.
        self.on_due: Callable[[Sequence[Event], int], None] | None = None
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
        self.plain = False

    def bodies(
        self, records: Sequence[Record], *, wait: bool = True, most_bytes: int | None = None
    ) -> list[bytes | None]:
        """The bodies of these messages, None for one that was lost; in memory all are at hand.

        Unless it may `wait` for the disk: BlockingIOError if it had to. With `most_bytes`, reading
        stops after so many; the first body is read however large it is.
        """
        return list(map(body_of, records))

    def settle(self, now: int) -> None:
        """Let the first that is due happen, and serve those who waited for it. Needs the lock.

        If more is due, `wake_at` stays in the past, and the next operation goes on.
        """
        events = decide.tick(self.queue, now, SLICE)
        self._record_and_apply(events, lazy=True)
        apply.settled(self.queue, ())
        if self.on_due is not None:
            self.on_due(events, now)
        self.serve(now)
        self._announce(events, now)

    def _catch_up(self, now: int) -> None:
        """Let what is due happen for someone who only looks, and writes nothing by that."""
        self.store.only_looking = True
        try:
            self._settle_all(now, self.queue.size)
        finally:
            self.store.only_looking = False

    def _settle_all(self, now: int, wanted: int = 0) -> None:
        """Settle this queue and those it has dead letters from, until so many are ready.

        A broker's queues are settled a little at a time, so that none holds up the others.
        """
        queue = self.queue
        wanted = wanted if self.store.settles_all else 0
        for source in queue.sources:
            while now >= source.wake_at:
                self.store.sessions[source.name].settle(now)
                if not self.store.settles_all:
                    break
        while now >= queue.wake_at:
            self.settle(now)
            if queue.ready >= wanted:
                break

    def _next(self, now: int, count: int, timeout: int) -> list[Lease]:
        """Lease from the head of the line; as SQS does it, what has no deliveries left dies."""
        events = decide.deliver(self.queue, count, timeout, now)
        self._record_and_apply(events, lazy=True)
        if self.dead is not None:
            self._announce(events, now)
            if self.dead.waiters:
                self.store.wake(self, self.queue.wake_at)
        if len(events) == 1 and type(events[0]) is Leased:
            return events[0].leases
        return [lease for event in events if type(event) is Leased for lease in event.leases]

    def serve(self, now: int) -> None:
        """Give what is ready to those who wait, first come, first served. Needs the lock."""
        queue = self.queue
        while self.waiters and queue.mask and not queue.settings.paused:
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

    def _park(self, waiter: Waiter) -> None:
        self.waiters[waiter] = None
        for queue in (self.queue, *self.queue.sources):
            self.store.wake(self.store.sessions[queue.name], queue.wake_at)

    def _dismiss(self, waiter: Waiter) -> None:
        if self.waiters.pop(waiter, waiter) is None:
            waiter.leases = []
            waiter.wake()

    def _return_unseen(self, waiter: Waiter, now: int) -> None:
        leases, waiter.leases = waiter.leases or [], []
        living = list(compress(leases, decide.live(leases, now)))
        events = [Released(lease, to_front=True) for lease in reversed(living)]
        self._record_and_apply(events, lazy=True)
        self.serve(now)

    def _announce(self, events: Iterable[Event], now: int) -> None:
        """Dead letters may be what somebody waits for."""
        if self.dead is not None and any(type(event) in _DEATHS for event in events):
            self.dead.serve(now)

    def _record_and_apply(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        """Put events on record and apply them, all of them whatever comes. Needs the lock."""
        written = self._write(events, lazy=lazy)
        done = 0
        try:
            for event in events:
                apply.HOW[type(event)](self.queue, event)
                done += 1
        except BaseException:  # a signal handler raised: what is on record has to happen
            uninterrupted(self._finish, events[done:])
            raise
        return written

    def _finish(self, events: Sequence[Event]) -> None:
        for event in events:
            finish(self.queue, event)

    def _write(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        """Put events on record before they are applied; in memory there is none. Needs the lock."""
        self.totals.count(events)
        return None
