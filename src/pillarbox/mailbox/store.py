"""A store: a set of queues with one lock, one clock and one identity, in memory.

Message ids are computed from the store's random prefix and the message's key. Receipt handles
contain a keyed hash, so they need not be stored and can't be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from threading import get_ident
from typing import Any, TypeVar

from pillarbox.adaptive_lock import AdaptiveLock
from pillarbox.clock import Clock, SystemClock
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError
from pillarbox.core.events import Event
from pillarbox.core.limits import queue_name
from pillarbox.core.queue import DEFAULT_SETTINGS, NEVER, Lease, Queue, Settings
from pillarbox.mailbox.answers import is_reply_queue
from pillarbox.mailbox.message_ids import MessageIds
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.queue_steps import QueueSteps, Written
from pillarbox.mailbox.waiters import Pulse

R = TypeVar("R")


class Store:
    """Queues in memory."""

    settles_all = True  # whether one operation may settle any number of messages
    waits = False  # whether writes have to be confirmed
    read_only_step = False  # a read-only call is settling expired messages
    confirms_here = False  # whether this thread, interrupted by a signal handler, is confirming

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.lock = AdaptiveLock()
        self.last_key = 0
        self._promises: dict[int, deque[Written]] = {}  # by thread that is `holding`
        self.sessions: dict[str, QueueSession] = {}
        self.reply_queues: set[str] = set()  # those that were opened in this process
        self._start()
        _stores.add(self)

    def _start(self) -> None:
        """Create what two processes can't share; called again in a forked child."""
        self.pulse = Pulse(self, self.clock)
        self._alarms: list[tuple[int, int, QueueSteps]] = []  # heap of (time, tie-breaker, queue)
        self._alarm_numbers = count()
        self.prefix = secrets.token_hex(8) + "-"
        self._secret = secrets.token_bytes(32)

    @property
    def prefix(self) -> str:
        """The identity of this store, part of its message ids."""
        return self._prefix

    @prefix.setter
    def prefix(self, prefix: str) -> None:
        self._prefix = prefix
        self.ids = MessageIds(prefix)

    def restart_after_fork(self) -> None:
        """Give the child's copy of the store its own ids, and no waiting receivers."""
        self.lock.restart_after_fork()  # another thread of the parent may have held it
        self._start()
        for session in self.sessions.values():
            session.waiters.clear()
            session.alarm_at = NEVER

    def session(
        self, name: str, settings: Settings = DEFAULT_SETTINGS, *, namespace: str = ""
    ) -> QueueSession:
        """Return the session of a queue. Only a new queue gets these settings.

        A namespace prefixes the name: the broker has one for each region and account.
        """
        with self.lock:
            full_name = namespace + queue_name(name)
            session = self.sessions.get(full_name)
            if session is None:
                session = self.sessions[full_name] = self._new_session(Queue(full_name, settings))
            return session

    def session_for_answer(self, name: str) -> QueueSession | None:
        """Return the session of a reply queue; None if its client has closed."""
        if is_reply_queue(name) and name not in self.sessions:
            return None
        return self.session(name)

    def keep_reply_queue(self, name: str) -> None:
        """Register a client's reply queue; delete reply queues that ended processes left."""
        with self.lock:
            left = set(filter(is_reply_queue, self.sessions)) - self.reply_queues - {name}
            self.reply_queues |= {name, *left}  # no other thread may delete these
        for each in left:
            self.drop_reply_queue(each)

    def drop_reply_queue(self, name: str) -> None:
        """Delete the reply queue of a closing client."""
        if name in self.sessions:
            self.drop(name)
        self.reply_queues.discard(name)

    def _new_session(self, queue: Queue) -> QueueSession:
        return QueueSession(self, queue)

    def set_dead_letters(
        self,
        source: QueueSession,
        target: QueueSession,
        max_deliveries: int,
        *,
        chain: bool = False,
    ) -> None:
        """Dead-letter messages of `source` to `target`.

        Only with `chain`, as in SQS, may a dead-letter queue have a dead-letter queue of its own.
        """
        known = source.queue.settings.max_deliveries
        if source.dead is target and known == max_deliveries:
            return  # unchanged: write nothing
        with self.lock:
            if not chain:
                _refuse_chain(source.queue, target.queue)
            self._link(source, target, max_deliveries)
            target.plain = False

    def keep_dead_letters(self, source: QueueSession) -> None:
        """Remove the dead-letter queue of `source`."""
        with self.lock:
            self._link(source, None, 0)

    def _link(self, source: QueueSession, target: QueueSession | None, max_deliveries: int) -> None:
        if target is not None and self.sessions.get(target.queue.name) is not target:
            raise MailboxClosedError(f"queue {target.queue.name!r} was deleted")
        self.before_changes((source,))
        before = source.queue.dead_letters
        source.queue.send_dead_letters_to(None if target is None else target.queue)
        try:
            source.configure(max_deliveries=max_deliveries)
        except BaseException:  # perhaps not logged: then nothing may die
            source.queue.send_dead_letters_to(before)
            raise
        source.dead = target

    def pause(self, session: QueueSession, *, paused: bool) -> None:
        """Pause or resume delivery; a paused queue still accepts messages."""
        with self.lock:
            if session.queue.settings.paused != paused:
                session.configure(paused=paused)
                session.serve(self.clock.now())

    def before_changes(self, sessions: Iterable[QueueSteps], events: Sequence[Event] = ()) -> None:
        """Prepare for changes to these queues, by these events and others. Requires the lock."""

    def note(self, session: QueueSession, notes: dict[str, Any]) -> None:
        """Replace the queue's metadata, which the store keeps but does not interpret."""
        with self.lock:
            session.note(notes)

    def drop(self, name: str) -> None:
        """Delete a queue and its messages. Its dead-letter queue stays."""
        with self.lock:
            self._drop(self.sessions[name])

    def _drop(self, session: QueueSession) -> None:
        queues = (session.queue, *session.queue.sources)
        self.before_changes([self.sessions[queue.name] for queue in queues])
        session.queue.keep_dead_letters()
        for source in list(session.queue.sources):
            source.keep_dead_letters()
            self.sessions[source.name].dead = None
        del self.sessions[session.queue.name]
        session.alarm_at = NEVER
        session.end()

    def confirm(self, written: Written) -> None:
        """Wait until a write is confirmed; if this thread is `holding`, collect it instead."""
        held = self._promises.get(get_ident())
        if held is None:
            written.wait()
        else:
            held.append(written)

    @contextmanager
    def holding(self) -> Iterator[deque[Written]]:
        """Collect confirmations instead of waiting for them, for asyncio; yield the last one.

        Writes are confirmed in order, so the last one is enough.
        """
        me, held = get_ident(), deque[Written](maxlen=1)
        outer = self._promises.get(me)
        self._promises[me] = held
        try:
            yield held
        finally:
            if outer is None:
                self._promises.pop(me, None)
            else:
                self._promises[me] = outer  # an outer caller, such as a broker, is still holding

    @property
    def is_holding(self) -> bool:
        """Whether this thread must not block on confirmations."""
        return get_ident() in self._promises

    def confirmed_once(self, verb: Callable[[], R]) -> R:
        """Run a verb of many steps; return its result once the last step is confirmed."""
        with self.holding() as written:
            answer = verb()
        if written:
            self.confirm(written[-1])
        return answer

    async def confirmed(self, verb: Callable[[], R]) -> R:
        """Run a verb without blocking the loop; return its result once its writes are confirmed."""
        with self.holding() as written:
            answer = verb()
        for each in written:
            await each
        return answer

    def wake(self, session: QueueSteps, at: int) -> None:
        """Settle this queue by timer at `at` or earlier. Requires the lock."""
        if at < session.alarm_at:
            session.alarm_at = at
            heappush(self._alarms, (at, next(self._alarm_numbers), session))
            self.pulse.arm(at)

    def beat(self) -> int:
        """Settle the queues whose alarm is due; return the time of the next alarm.

        Settles only a few messages per queue, so that other threads get the lock in between.
        """
        with self.lock:
            now = self.clock.now()
            due: list[QueueSteps] = []
            while self._alarms and self._alarms[0][0] <= now:
                at, _, session = heappop(self._alarms)
                if at == session.alarm_at:  # otherwise replaced by an earlier alarm
                    session.alarm_at = NEVER
                    due.append(session)
            for session in due:
                if session.queue.wake_at <= now:
                    session.settle(now)
                if session.watched:
                    self.wake(session, session.queue.wake_at)
            following = self._alarms[0][0] if self._alarms else NEVER
            self.pulse.rearm(following)
            return following

    def new_keys(self, now: int, count: int) -> range:
        """Return `count` new keys: the send time, made unique. Requires the lock.

        `range` creates compact ints; arithmetic may not.
        """
        start = now >> 1
        if start <= self.last_key:
            start = self.last_key + 1
        self.last_key = start + count - 1
        return range(start, start + count)

    def message_id(self, key: int) -> str:
        return self.ids.of(key)

    def message_ids(self, keys: Sequence[int]) -> list[str]:
        return self.ids.of_all(keys)

    def key_of(self, message_id: str) -> int | None:
        """Return the key of a message id, or None if it is not an id of this store."""
        return self.ids.key_of(message_id)

    def handle(self, queue: Queue, lease: Lease) -> str:
        """Return the receipt handle of one delivery."""
        key, number, leased_at, releases = _identity(lease)
        plain = f"{key:x}.{number:x}.{leased_at:x}.{releases:x}"
        return f"{plain}.{self._sign(queue, plain)}"

    def lease_of(self, queue: Queue, handle: str) -> Lease | None:
        """Return the lease of a receipt handle, if it is the message's current lease."""
        delivery = self.delivery_of(queue, handle)
        if delivery is None:
            return None
        with self.lock:
            lease = queue.leases.find(delivery[0])
        return lease if lease is not None and _identity(lease) == delivery else None

    def delivery_of(self, queue: Queue, handle: str) -> tuple[int, ...] | None:
        """Return the delivery that a receipt handle identifies (message key first), if valid."""
        plain, _, signature = handle.rpartition(".")
        if not hmac.compare_digest(
            signature.encode(errors="surrogatepass"), self._sign(queue, plain).encode()
        ):
            return None
        return tuple([int(part, 16) for part in plain.split(".")])

    def _sign(self, queue: Queue, plain: str) -> str:
        # A name has no slash, so the signed text can't be that of another queue.
        text = f"{queue.name}/{plain}".encode(errors="surrogatepass")
        return hashlib.blake2b(text, key=self._secret, digest_size=16).hexdigest()


def _identity(lease: Lease) -> tuple[int, int, int, int]:
    """Return what is unique to a delivery, even if earlier ones were released uncounted."""
    releases = lease.extra.releases if lease.extra is not None else 0
    return lease.record.key, lease.number, lease.leased_at, releases


def no_queue(name: str) -> InvalidParameterError:
    """Return the error for a missing queue with create=False."""
    return InvalidParameterError("name", name, "an existing queue if create=False")


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.restart_after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _refuse_chain(source: Queue, target: Queue) -> None:
    if target is source or target.dead_letters is not None:
        raise InvalidParameterError(
            "dead_letters", target.name, "another queue, with no dead-letter queue of its own"
        )
    if source.sources:
        raise InvalidParameterError(
            "dead_letters", source.name, "set on a queue that is not a dead-letter queue itself"
        )
