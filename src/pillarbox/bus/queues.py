"""The queues of a bus: one for each recipient, with the delayed messages, in one store.

Events are collected here; the bus publishes them when nothing is locked and everything is
confirmed. Nothing is due before `wake_at`, so checking earlier costs nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pillarbox.bus import events as e
from pillarbox.bus.delay import delay_ns
from pillarbox.bus.envelope import Envelope, Letter, SendResult, envelope, iso
from pillarbox.bus.errors import UnknownRecipientError
from pillarbox.codec import Codec, codec_for
from pillarbox.core import decide, limits
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError
from pillarbox.core.events import CameDue, Event, Removed
from pillarbox.core.queue import NEVER, Queue
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.local_options import open_session
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store
from pillarbox.worker.dispatcher import Dispatcher

_RECIPIENT = re.compile(r"[A-Za-z0-9_-]{1,76}\Z")  # leaves room for `_dlq` in the queue name
_LEASE_SECONDS = limits.VISIBILITY_SECONDS_MAX  # the only process of the store needs no renewals
_MS_NS = 1_000_000
_CODEC: Codec[Letter] = codec_for(Letter)


class Recipient(NamedTuple):
    """The queue of a recipient, and a mailbox to receive from it."""

    session: QueueSession
    box: LocalMailbox[Letter]


class BusQueues:
    """The recipients of a bus and their messages."""

    def __init__(
        self, store: Store, dead_letters: DeadLetterPolicy | None, dispatcher: Dispatcher
    ) -> None:
        self.store = store
        self.dispatcher = dispatcher
        self.closed = False
        self.recipients: dict[str, Recipient] = {}
        self.listeners: list[
            Callable[[str], None]
        ] = []  # called with the recipient that may have work; must be quick
        self.wake_at = 0
        self._dead_letters = dead_letters
        self._events: deque[e.BusEvent] = deque()
        self._came_due = 0
        for name, session in list(store.sessions.items()):
            if not session.queue.sources:  # not a dead-letter queue
                self._adopt(name, session)

    def register(self, name: Any) -> None:
        """Create the queue of a recipient, if it does not exist."""
        self._refuse_if_closed()
        if not isinstance(name, str) or not _RECIPIENT.match(name):
            raise InvalidParameterError(
                "recipient", name, "1 to 76 letters, digits, hyphens or underscores"
            )
        if name not in self.recipients:
            self._adopt(name, open_session(self.store, name, {"dead_letters": self._dead_letters}))

    def unregister(self, name: str) -> int:
        """Delete a recipient with its messages; returns their number."""
        session, box = self.recipient(name)
        del self.recipients[name]
        box.close()
        count = session.queue.size
        if session.dead is not None:  # first: after a crash it would look like a recipient
            self.store.drop(session.dead.queue.name)
        self.store.drop(name)
        return count

    def recipient(self, name: Any) -> Recipient:
        self._refuse_if_closed()
        found = self.recipients.get(name) if isinstance(name, str) else None
        if found is None:
            raise UnknownRecipientError(name, self.recipients)
        return found

    def _adopt(self, name: str, session: QueueSession) -> None:
        box: LocalMailbox[Letter] = LocalMailbox(session, Letter)
        session.on_due = lambda events, now: self._on_due(name, events, now)
        self.recipients[name] = Recipient(session, box)

    def send(
        self, to: str, sender: str, payload: Any, task_id: str | None, delay_ms: Any
    ) -> SendResult:
        session = self.recipient(to).session
        limits.text("sender", sender)
        if task_id is not None:
            limits.text("task_id", task_id)
        due, when, delay = self._due(delay_ms)
        data = _CODEC.encode(Letter(sender, payload, task_id))
        limits.body_bytes(data, limits.BODY_BYTES_MAX)
        (key,) = session.send((data,), due=due)
        message_id = self.store.message_id(key)
        if when is not None:
            self._events.append(e.MessageScheduled(message_id, to, sender, delay, when))
        self._changed(to, due)
        return SendResult(message_id, when)

    def reschedule(self, message_id: str, delay_ms: Any) -> SendResult | None:
        """None if the message is not delayed."""
        due, when, _ = self._due(delay_ms)
        found = self._scheduled(message_id)
        if found is None:
            return None
        name, key = found
        at = due or self.store.clock.now()
        if not self.recipients[name].session.step(
            lambda queue, now: decide.reschedule(queue, key, at)
        ):
            return None
        deliver_at = when or iso(at + self.store.clock.epoch_ns)
        self._events.append(e.MessageRescheduled(message_id, name, deliver_at))
        self._changed(name, at)
        if not due:
            self.deliver_due()
        return SendResult(message_id, when)

    def cancel(self, message_id: str) -> bool:
        """False if the message is not delayed, for example because it was delivered."""
        found = self._scheduled(message_id)
        if found is None:
            return False
        name, key = found

        def removed(queue: Queue, now: int) -> list[Removed]:
            return [Removed([key])] if queue.schedule.find(key) is not None else []

        if not self.recipients[name].session.step(removed):
            return False
        self._events.append(e.MessageCancelled(message_id, name))
        return True

    def _due(self, delay_ms: Any) -> tuple[int, str | None, float]:
        """The end of a delay in nanoseconds and as text, and the delay in milliseconds."""
        clock = self.store.clock
        now = clock.now()
        delay = delay_ns(delay_ms, now + clock.epoch_ns)
        if not delay:
            return 0, None, 0
        return now + delay, iso(now + delay + clock.epoch_ns), delay / _MS_NS

    def _scheduled(self, message_id: str) -> tuple[str, int] | None:
        self._refuse_if_closed()
        key = self.store.key_of(limits.text("message_id", message_id))
        if key is None:
            return None
        names = (
            name
            for name, (session, _) in list(self.recipients.items())
            if session.queue.schedule.find(key)
        )
        return next(((name, key) for name in names), None)

    def deliver_due(self) -> int:
        """Deliver the messages that are due; returns their number."""
        self._refuse_if_closed()
        with self.store.lock:
            now = self.store.clock.now()
            if now < self.wake_at:
                return 0
            before = self._came_due
            for session, _ in self.recipients.values():
                while session.queue.wake_at <= now:
                    session.settle(now)
            wakes = (session.queue.wake_at for session, _ in self.recipients.values())
            self.wake_at = min(wakes, default=NEVER)
            return self._came_due - before

    def force(self) -> int:
        """Deliver all delayed messages now; returns their number."""
        due = self.deliver_due()
        forced = 0
        for name, (session, _) in list(self.recipients.items()):
            if session.queue.schedule:
                forced += len(session.step(decide.force))
                self._changed(name)
        if forced:
            self._events.append(e.DelayedForced(forced))
        return due + forced

    def delayed(self, name: str | None) -> int:
        """Number of delayed messages, without delivering those that are due."""
        chosen = self.recipients.values() if name is None else (self.recipient(name),)
        with self.store.lock:
            return sum(session.queue.scheduled for session, _ in chosen)

    def _on_due(self, name: str, events: Sequence[Event], now: int) -> None:
        """Called under the lock of a queue with the events of messages that came due."""
        epoch = self.store.clock.epoch_ns
        for event in events:
            if isinstance(event, CameDue):
                self._came_due += 1
                self._events.append(
                    e.MessageDelivered(
                        self.store.message_id(event.record.key),
                        name,
                        iso(event.at + epoch),
                        iso(now + epoch),
                        (now - event.at) / _MS_NS,
                    )
                )
        for listener in self.listeners:
            listener(name)

    def receive(self, name: str, count: int = 1, wait_seconds: float = 0) -> list[Envelope]:
        """Receive and acknowledge messages."""
        box = self.recipient(name).box
        while True:
            messages = box.receive(max_messages=count, wait_time_seconds=wait_seconds)
            if not messages:
                return []
            taken = box.acknowledge_many(messages)
            if any(taken):
                return [envelope(m, name) for m, mine in zip(messages, taken, strict=True) if mine]

    def drain(self, name: str | None) -> list[Envelope]:
        """Receive and acknowledge everything that is ready now."""
        drained: list[Envelope] = []
        for each in list(self.recipients) if name is None else (name,):
            while taken := self.receive(each, limits.MESSAGES_MAX):
                drained += taken
        return drained

    def lease(
        self, name: str, wanted: Callable[[int], bool] | None = None
    ) -> Message[Letter] | None:
        """Lease the next message for a handler; None if there is none or its key is not wanted."""
        found = self.recipients.get(name)
        if found is None:  # it was unregistered meanwhile
            return None
        session, box = found
        message = next(iter(box.receive(visibility_timeout=_LEASE_SECONDS)), None)
        if message is None:
            return None
        if wanted is not None and not wanted(message._delivery.record.key):
            session.release([message._delivery], to_front=True)
            return None
        self._wake_by(self.store.clock.now() + _LEASE_SECONDS * limits.SECOND_NS)
        return message

    def requeued(self, name: str, due: int = 0) -> None:
        """A message was returned to its queue, to be ready now or when it is due."""
        self._changed(name, due)

    async def recorded(self) -> None:
        """Wait until all leases are on disk, so that a delivery that kills the process counts."""
        if isinstance(self.store, DurableStore):
            await self.store.recorded()

    def requeue_orphans(self) -> None:
        """Return the messages that the previous process of this store had leased; they count."""
        for session, _ in self.recipients.values():
            session.nack(list(session.queue.leases), 0)

    def add_event(self, event: e.BusEvent) -> None:
        self._events.append(event)

    def publish(self) -> None:
        """Publish the collected events, without any lock: subscribers may use the bus."""
        while self._events:
            try:
                event = self._events.popleft()
            except IndexError:  # another thread published the last one
                return
            e.log_event(event)
            self.dispatcher.publish(event)

    def _changed(self, name: str, due: int = 0) -> None:
        """Notify listeners that a recipient may have work now, or when it is due."""
        if due:
            self._wake_by(due)
        for listener in self.listeners:
            listener(name)

    def _wake_by(self, due: int) -> None:
        with self.store.lock:
            self.wake_at = min(self.wake_at, due)

    @property
    def durable(self) -> bool:
        """Whether delayed messages survive the end of the process."""
        return self.store.waits

    def report_delayed(self) -> None:
        """Add an event that counts the messages still delayed."""
        count = self.delayed(None)
        if count:
            self._events.append(e.DelayedKept(count) if self.durable else e.DelayedAbandoned(count))

    def close(self) -> None:
        self.closed = True
        for _, box in self.recipients.values():
            box.close()

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise MailboxClosedError("the bus is closed; open it again to send or receive")
