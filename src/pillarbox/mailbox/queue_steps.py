"""The steps that a queue's verbs consist of. Everything here requires the store's lock.

Settle what is due, decide, write the events, apply them, serve waiting receivers.
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
    """A write that can be waited for until it is confirmed."""

    def wait(self, timeout: float | None = None) -> int: ...
    def __await__(self) -> Generator[Any, None, int]: ...


SLICE = 20  # messages per step, to keep the lock only briefly
_DEATHS = (Died, DiedInLine)


class QueueSteps:
    """One queue of a store, for callers that hold the store's lock."""

    number = 0  # identifies the queue in the log of a store on disk

    def __init__(self, store: Store, queue: Queue) -> None:
        self.store = store
        self.queue = queue
        self.dead: QueueSession | None = None
        self.totals = Totals(queue)
        self.notes: dict[str, Any] = {}  # metadata for callers; changed by `note`
        # Settings that the hot path can handle: no capacity, and redelivery at the tail.
        self.plain = queue.settings.capacity is None and queue.settings.redelivery == "tail"
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.alarm_at = NEVER  # when the store's timer next handles this queue
        # Called with the events that came due and the current time; holds the lock, so must be
        # brief.
        self.on_due: Callable[[Sequence[Event], int], None] | None = None
        self._lock = store.lock
        self._now = store.clock.now

    @property
    def watched(self) -> bool:
        """Whether a receiver waits for messages that a timer of this queue may release."""
        return bool(self.waiters) or (self.dead is not None and bool(self.dead.waiters))

    def note(self, notes: dict[str, Any]) -> None:
        """Replace the queue's metadata. Requires the lock."""
        self.notes = notes

    def configure(self, **changes: Any) -> None:
        self.queue.settings = msgspec.structs.replace(self.queue.settings, **changes)
        self.plain = False

    def bodies(
        self, records: Sequence[Record], *, wait: bool = True, most_bytes: int | None = None
    ) -> list[bytes | None]:
        """Return the bodies of these messages; None for a body that was lost.

        With `wait=False`, raise BlockingIOError instead of reading from the disk. With
        `most_bytes`, stop after that many bytes, but always read the first body.
        """
        return list(map(body_of, records))

    def settle(self, now: int) -> None:
        """Apply the first expiries that are due and serve waiting receivers. Requires the lock.

        If more is due, `wake_at` stays in the past, and the next operation continues.
        """
        events = decide.tick(self.queue, now, SLICE)
        self._record_and_apply(events, lazy=True)
        apply.settled(self.queue, ())
        if self.on_due is not None:
            self.on_due(events, now)
        self.serve(now)
        self._serve_dead_letters(events, now)

    def _catch_up(self, now: int) -> None:
        """Settle what is due on behalf of a read-only call, which must not write to the log."""
        self.store.read_only_step = True
        try:
            self._settle_all(now, self.queue.size)
        finally:
            self.store.read_only_step = False

    def _settle_all(self, now: int, wanted: int = 0) -> None:
        """Settle this queue and its source queues, until `wanted` messages are ready.

        A broker settles a few messages per call, so that no queue blocks the others.
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
        """Lease the next messages; dead-letter those with no deliveries left, as SQS does."""
        events = decide.deliver(self.queue, count, timeout, now)
        self._record_and_apply(events, lazy=True)
        if self.dead is not None:
            self._serve_dead_letters(events, now)
            if self.dead.waiters:
                self.store.wake(self, self.queue.wake_at)
        if len(events) == 1 and type(events[0]) is Leased:
            return events[0].leases
        return [lease for event in events if type(event) is Leased for lease in event.leases]

    def serve(self, now: int) -> None:
        """Give ready messages to waiting receivers, in order of arrival. Requires the lock."""
        queue = self.queue
        while self.waiters and queue.mask and not queue.settings.paused:
            waiter = next(iter(self.waiters))
            leases = self._next(now, waiter.count, waiter.timeout)
            if not leases:  # all candidates were dead-lettered
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
        except BaseException:  # interrupted, perhaps before waking
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

    def _serve_dead_letters(self, events: Iterable[Event], now: int) -> None:
        """Serve receivers that wait on the dead-letter queue."""
        if self.dead is not None and any(type(event) in _DEATHS for event in events):
            self.dead.serve(now)

    def _record_and_apply(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        """Write events, then apply them all, even if interrupted. Requires the lock."""
        written = self._write(events, lazy=lazy)
        done = 0
        try:
            for event in events:
                apply.HOW[type(event)](self.queue, event)
                done += 1
        except BaseException:  # a signal handler raised: written events must still be applied
            uninterrupted(self._finish, events[done:])
            raise
        return written

    def _finish(self, events: Sequence[Event]) -> None:
        for event in events:
            finish(self.queue, event)

    def _write(self, events: Sequence[Event], *, lazy: bool = False) -> Written | None:
        """Write events before they are applied; memory has no log. Requires the lock."""
        self.totals.count(events)
        return None
