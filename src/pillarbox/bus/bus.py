"""MessageBus: messages between named recipients, with optional delays, for threads and asyncio.

Each recipient is a queue of one store: in memory, or on disk with `MessageBus.open(path)`. The bus
needs no thread: receivers deliver due messages, and waiting receivers wake up in time. Events are
collected, and published when no lock is held and everything is confirmed.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from pillarbox.bus import events as e
from pillarbox.bus.delay import MS_NS, due_after
from pillarbox.bus.envelope import Envelope, Letter, SendResult, envelope, iso
from pillarbox.bus.recipients import Recipient, UnknownRecipientError, check_name
from pillarbox.clock import Clock
from pillarbox.closing import Closing
from pillarbox.codec import Codec, codec_for
from pillarbox.core import decide, limits
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError
from pillarbox.core.events import CameDue, Event, Removed
from pillarbox.core.queue import NEVER, Queue
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.local import LocalMailbox, open_session
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import DeadLetterPolicy, Stats
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store
from pillarbox.worker.dispatcher import Dispatcher

DEAD_LETTERS = DeadLetterPolicy(5)

_URL = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # not a Windows drive letter
_LEASE_SECONDS = limits.VISIBILITY_SECONDS_MAX  # one process uses the store: no renewals needed
_CODEC: Codec[Letter] = codec_for(Letter)


class MessageBus(Closing):
    """Messages between named recipients.

    Examples:
        >>> bus = MessageBus("planner", "coder")
        >>> sent = bus.send(to="coder", sender="planner", payload={"do": "tests"})
        >>> bus.receive_next("coder").payload
        {'do': 'tests'}
        >>> later = bus.send(to="coder", sender="planner", payload="are you done?", delay_ms=60_000)
        >>> bus.receive_next("coder"), bus.delayed_count()
        (None, 1)
        >>> bus.cancel(later.message_id)
        True
    """

    def __init__(
        self,
        *recipients: str,
        dead_letters: DeadLetterPolicy | None = DEAD_LETTERS,
        dispatcher: Dispatcher | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        self.dispatcher = dispatcher or Dispatcher()
        self.closed = False
        self._store = store or Store(clock)
        self._own_store: DurableStore | None = None
        self._dead_letters = dead_letters
        self._recipients: dict[str, Recipient] = {}
        # Called with a recipient that may have work; must not block.
        self._listeners: list[Callable[[str], None]] = []
        self._wake_at = 0  # nothing is due before this time
        self._events: deque[e.BusEvent] = deque()
        self._came_due = 0
        for name, session in list(self._store.sessions.items()):
            if not session.queue.sources:  # not a dead-letter queue
                self._adopt(name, session)
        self.register(*recipients)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *recipients: str,
        dead_letters: DeadLetterPolicy | None = DEAD_LETTERS,
        dispatcher: Dispatcher | None = None,
        **options: Any,
    ) -> Self:
        """Open a bus on disk, with all recipients that are registered there.

        Messages and their delays survive the end of the process. Takes the options of
        `DurableMailbox`, such as `durability` and `clock`.
        """
        store = DurableStore(_directory(path), **options)
        try:
            bus = cls(*recipients, dead_letters=dead_letters, dispatcher=dispatcher, store=store)
            for session, _ in bus._recipients.values():  # leased by the previous process
                session.nack(list(session.queue.leases), 0)
            bus._own_store = store
        except BaseException:
            store.close()
            raise
        return bus

    @property
    def recipients(self) -> tuple[str, ...]:
        """The names of all recipients."""
        return tuple(self._recipients)

    @property
    def durable(self) -> bool:
        """Whether messages survive the end of the process."""
        return self._store.waits

    def register(self, *recipients: str) -> None:
        """Register recipients; those already registered are not changed."""
        self._refuse_if_closed()
        for name in recipients:
            check_name(name)
            if name not in self._recipients:
                options: Any = {"dead_letters": self._dead_letters}
                self._adopt(name, open_session(self._store, name, options))

    def unregister(self, recipient: str) -> int:
        """Delete a recipient, its messages and its dead letters; return the number of messages."""
        session, box = self._recipient(recipient)
        del self._recipients[recipient]
        box.close()
        count = session.queue.size
        if session.dead is not None:  # first; left behind by a crash, it would be a recipient
            self._store.drop(session.dead.queue.name)
        self._store.drop(recipient)
        return count

    def send(
        self, *, to: str, sender: str, payload: Any, task_id: str | None = None, delay_ms: Any = 0
    ) -> SendResult:
        """Send any JSON value, to be received immediately or after `delay_ms` milliseconds.

        A delay that is negative or not a number counts as 0; an infinite one is refused.
        """
        session = self._recipient(to).session
        limits.text("sender", sender)
        if task_id is not None:
            limits.text("task_id", task_id)
        due, when, delay = due_after(delay_ms, self._store.clock)
        data = _CODEC.encode(Letter(sender, payload, task_id))
        limits.body_bytes(data, limits.BODY_BYTES_MAX)
        (key,) = session.send((data,), due=due)
        message_id = self._store.message_id(key)
        if when is not None:
            self._events.append(e.MessageScheduled(message_id, to, sender, delay, when))
        self._changed(to, due)
        self._publish()
        return SendResult(message_id, when)

    def cancel(self, message_id: str) -> bool:
        """Cancel a delayed message; return False if it is no longer delayed."""
        scheduled = self._scheduled(message_id)
        if scheduled is None:
            return False
        name, key = scheduled

        def removed(queue: Queue, now: int) -> list[Removed]:
            return [Removed([key])] if queue.schedule.find(key) is not None else []

        if not self._recipients[name].session.step(removed):
            return False
        self._events.append(e.MessageCancelled(message_id, name))
        self._publish()
        return True

    def reschedule(self, message_id: str, delay_ms: Any) -> SendResult | None:
        """Change the delay of a message, from now; return None if it is no longer delayed."""
        due, when, _ = due_after(delay_ms, self._store.clock)
        scheduled = self._scheduled(message_id)
        if scheduled is None:
            return None
        name, key = scheduled
        clock = self._store.clock
        at = due or clock.now()
        session = self._recipients[name].session
        if not session.step(lambda queue, now: decide.reschedule(queue, key, at)):
            return None
        self._events.append(
            e.MessageRescheduled(message_id, name, when or iso(at + clock.epoch_ns))
        )
        self._changed(name, at)
        if not due:
            self.deliver_due_messages()
        self._publish()
        return SendResult(message_id, when)

    def deliver_due_messages(self) -> int:
        """Deliver the messages that are due, in order of time; return their number."""
        self._refuse_if_closed()
        with self._store.lock:
            now = self._store.clock.now()
            if now < self._wake_at:
                return 0
            before = self._came_due
            for session, _ in self._recipients.values():
                while session.queue.wake_at <= now:
                    session.settle(now)
            wakes = (session.queue.wake_at for session, _ in self._recipients.values())
            self._wake_at = min(wakes, default=NEVER)
            count = self._came_due - before
        self._publish()
        return count

    def delayed_count(self, recipient: str | None = None) -> int:
        """Return the number of delayed messages, of all recipients or of one."""
        chosen = self._recipients.values() if recipient is None else (self._recipient(recipient),)
        with self._store.lock:
            return sum(session.queue.scheduled for session, _ in chosen)

    def force_deliver_all_delayed(self) -> int:
        """Deliver all delayed messages now, in order of time; return their number."""
        due = self.deliver_due_messages()
        forced = 0
        for name, (session, _) in list(self._recipients.items()):
            if session.queue.schedule:
                forced += len(session.step(decide.force))
                self._changed(name)
        if forced:
            self._events.append(e.DelayedForced(forced))
        self._publish()
        return due + forced

    def receive_next(self, recipient: str) -> Envelope | None:
        """Receive and acknowledge the next message of a recipient; return None if there is none."""
        return next(iter(self._receive(recipient)), None)

    def wait_for_message(self, recipient: str, timeout: float | None = None) -> Envelope | None:
        """Like `receive_next`, but wait up to `timeout` seconds, or forever if it is None."""
        box = self._recipient(recipient).box
        while True:
            wait = limits.WAIT_SECONDS_MAX if timeout is None else timeout
            received = self._receive(recipient, 1, wait)
            if received or timeout is not None or box.closed:
                return next(iter(received), None)

    def drain(self, recipient: str | None = None) -> list[Envelope]:
        """Receive and acknowledge all ready messages of one recipient or of all."""
        drained: list[Envelope] = []
        for each in list(self._recipients) if recipient is None else (recipient,):
            while received := self._receive(each, limits.MESSAGES_MAX):
                drained += received
        return drained

    def stats(self, recipient: str) -> Stats:
        """Return the message counts of a recipient by state."""
        stats = self._recipient(recipient).box.stats()
        self._publish()
        return stats

    def dead_letters(self, recipient: str) -> list[Envelope]:
        """Return the dead letters of a recipient, without moving them."""
        dead = self._recipient(recipient).box.dead_letters
        messages = dead.peek(limits.MESSAGES_MAX) if dead is not None else ()
        return [envelope(message, recipient) for message in messages]

    def redrive(self, recipient: str) -> int:
        """Move dead letters back to their recipient; return their number."""
        dead = self._recipient(recipient).box.dead_letters
        count = dead.redrive() if dead is not None else 0
        self._changed(recipient)
        return count

    def close(self) -> None:
        """Close the bus and wake all waiting receivers.

        Delayed messages stay on disk; in memory they are lost, with a warning.
        """
        if self.closed:
            return
        self._report_delayed()
        self.closed = True
        for _, box in self._recipients.values():
            box.close()
        if self._own_store is not None:
            self._own_store.close()
        self._publish()

    def __repr__(self) -> str:
        kind = "on disk" if self.durable else "in memory"
        return f"{type(self).__name__}({len(self.recipients):,} recipients, {kind})"

    # -- for the processor and the bus for asyncio ---------------------------------------------

    def _recipient(self, name: Any) -> Recipient:
        self._refuse_if_closed()
        recipient = self._recipients.get(name) if isinstance(name, str) else None
        if recipient is None:
            raise UnknownRecipientError(name, self._recipients)
        return recipient

    def _lease(
        self, name: str, wanted: Callable[[int], bool] | None = None
    ) -> Message[Letter] | None:
        """Lease the next message for a handler; None if there is none or it is not wanted."""
        recipient = self._recipients.get(name)
        if recipient is None:  # it was unregistered meanwhile
            return None
        session, box = recipient
        message = next(iter(box.receive(visibility_timeout=_LEASE_SECONDS)), None)
        if message is None:
            return None
        if wanted is not None and not wanted(message._delivery.record.key):
            session.release([message._delivery], to_front=True)
            return None
        self._wake_by(self._store.clock.now() + _LEASE_SECONDS * limits.SECOND_NS)
        return message

    def _changed(self, name: str, due: int = 0) -> None:
        """Notify listeners that a recipient may have work now, or when it is due."""
        if due:
            self._wake_by(due)
        for listener in self._listeners:
            listener(name)

    def _publish(self) -> None:
        """Publish the collected events while no lock is held: subscribers may use the bus."""
        while self._events and not self._store.is_holding:
            try:
                event = self._events.popleft()
            except IndexError:  # another thread published the last one
                return
            e.log_event(event)
            self.dispatcher.publish(event)

    def _report_delayed(self) -> None:
        """Add an event with the number of messages that are still delayed."""
        count = self.delayed_count()
        if count:
            self._events.append(e.DelayedKept(count) if self.durable else e.DelayedAbandoned(count))

    # -- queues --------------------------------------------------------------------------------

    def _adopt(self, name: str, session: QueueSession) -> None:
        box: LocalMailbox[Letter] = LocalMailbox(session, Letter)
        session.on_due = lambda events, now: self._on_due(name, events, now)
        self._recipients[name] = Recipient(session, box)

    def _receive(self, name: str, count: int = 1, wait_seconds: float = 0) -> list[Envelope]:
        """Receive and acknowledge messages."""
        box = self._recipient(name).box
        received: list[Envelope] = []
        while messages := box.receive(max_messages=count, wait_time_seconds=wait_seconds):
            acknowledged = box.acknowledge_many(messages)
            received = [
                envelope(m, name) for m, ok in zip(messages, acknowledged, strict=True) if ok
            ]
            if received:
                break
        self._publish()
        return received

    def _scheduled(self, message_id: str) -> tuple[str, int] | None:
        """Return the recipient and the key of a delayed message."""
        self._refuse_if_closed()
        key = self._store.key_of(limits.text("message_id", message_id))
        for name, (session, _) in list(self._recipients.items()):
            if key is not None and session.queue.schedule.find(key):
                return name, key
        return None

    def _on_due(self, name: str, events: Sequence[Event], now: int) -> None:
        """Record events of messages that came due. Called under the lock of a queue."""
        epoch = self._store.clock.epoch_ns
        for event in events:
            if isinstance(event, CameDue):
                self._came_due += 1
                message_id, drift_ns = self._store.message_id(event.record.key), now - event.at
                times = iso(event.at + epoch), iso(now + epoch), drift_ns / MS_NS
                self._events.append(e.MessageDelivered(message_id, name, *times))
        for listener in self._listeners:
            listener(name)

    def _wake_by(self, due: int) -> None:
        with self._store.lock:
            self._wake_at = min(self._wake_at, due)

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise MailboxClosedError("the bus is closed; open it again to send or receive")


def _directory(path: str | os.PathLike[str]) -> str:
    """Return the directory of a path or a `file:` URL."""
    text = os.fspath(path)
    if _URL.match(text):
        problem = "a directory on this machine; a bus has no server (for a URL, use open_mailbox)"
        raise InvalidParameterError("path", text, problem)
    return text.removeprefix("file:")
