"""MessageBus: messages between named recipients, with optional delays, for threads and asyncio.

In memory by default; `MessageBus.open(path)` stores messages on disk. It needs no thread of its
own: receivers deliver what is due, and waiting receivers wake up in time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Self, TypeVar

from pillarbox.bus.envelope import Envelope, SendResult, envelope
from pillarbox.bus.queues import BusQueues
from pillarbox.clock import Clock
from pillarbox.closing import AsyncClosing, Closing
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.local import AsyncLocalMailbox
from pillarbox.mailbox.protocol import DeadLetterPolicy, Stats
from pillarbox.mailbox.store import Store
from pillarbox.worker.dispatcher import Dispatcher

R = TypeVar("R")

DEAD_LETTERS = DeadLetterPolicy(5)

_URL = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # a drive has one letter


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
        self.queues = BusQueues(store or Store(clock), dead_letters, self.dispatcher)
        self._own_store: DurableStore | None = None
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
        """Open a bus on disk, with all recipients that were registered there before.

        Messages and their delays survive the end of the process. Options are those of
        `DurableMailbox`, such as `durability` and `clock`.
        """
        store = DurableStore(_directory(path), **options)
        try:
            bus = cls(*recipients, dead_letters=dead_letters, dispatcher=dispatcher, store=store)
            bus.queues.requeue_orphans()
            bus._own_store = store
        except BaseException:
            store.close()
            raise
        return bus

    @property
    def recipients(self) -> tuple[str, ...]:
        """The names of all recipients."""
        return tuple(self.queues.recipients)

    @property
    def durable(self) -> bool:
        """Whether messages survive the end of the process."""
        return self.queues.durable

    def register(self, *recipients: str) -> None:
        """Register recipients; no effect on those already registered."""
        for name in recipients:
            self.queues.register(name)

    def unregister(self, recipient: str) -> int:
        """Delete a recipient, its messages and its dead letters; returns the number of messages."""
        return self.queues.unregister(recipient)

    def send(
        self, *, to: str, sender: str, payload: Any, task_id: str | None = None, delay_ms: Any = 0
    ) -> SendResult:
        """Send any JSON value, to be received at once or after `delay_ms` milliseconds.

        A delay that is negative or not a number counts as 0; an infinite one is refused.
        """
        return self._publish(self.queues.send(to, sender, payload, task_id, delay_ms))

    def cancel(self, message_id: str) -> bool:
        """Cancel a delayed message; False if it is not delayed any more."""
        return self._publish(self.queues.cancel(message_id))

    def reschedule(self, message_id: str, delay_ms: Any) -> SendResult | None:
        """Change the delay of a message, counted from now; None if it is not delayed any more."""
        return self._publish(self.queues.reschedule(message_id, delay_ms))

    def deliver_due_messages(self) -> int:
        """Deliver the messages that are due, in order of time; returns their number."""
        return self._publish(self.queues.deliver_due())

    def delayed_count(self, recipient: str | None = None) -> int:
        """Number of delayed messages, of all recipients or of one."""
        return self.queues.delayed(recipient)

    def force_deliver_all_delayed(self) -> int:
        """Deliver all delayed messages now, in order of time; returns their number."""
        return self._publish(self.queues.force())

    def receive_next(self, recipient: str) -> Envelope | None:
        """Receive and acknowledge the next message of a recipient; None if there is none."""
        return self._publish(next(iter(self.queues.receive(recipient)), None))

    def wait_for_message(self, recipient: str, timeout: float | None = None) -> Envelope | None:
        """Like `receive_next`, but wait up to `timeout` seconds, or forever if it is None."""
        box = self.queues.recipient(recipient).box
        while True:
            wait = limits.WAIT_SECONDS_MAX if timeout is None else timeout
            taken = self._publish(self.queues.receive(recipient, 1, wait))
            if taken or timeout is not None or box.closed:
                return next(iter(taken), None)

    def drain(self, recipient: str | None = None) -> list[Envelope]:
        """Receive and acknowledge everything that is ready, of one recipient or of all."""
        return self._publish(self.queues.drain(recipient))

    def stats(self, recipient: str) -> Stats:
        """Message counts of a recipient by state."""
        return self._publish(self.queues.recipient(recipient).box.stats())

    def dead_letters(self, recipient: str) -> list[Envelope]:
        """The dead letters of a recipient, which stay where they are."""
        dead = self.queues.recipient(recipient).box.dead_letters
        seen = dead.peek(limits.MESSAGES_MAX) if dead is not None else ()
        return [envelope(message, recipient) for message in seen]  # type: ignore[arg-type]

    def redrive(self, recipient: str) -> int:
        """Move dead letters back to their recipient; returns their number."""
        dead = self.queues.recipient(recipient).box.dead_letters
        count = dead.redrive() if dead is not None else 0
        self.queues.requeued(recipient)
        return count

    def close(self) -> None:
        """Close the bus and wake all waiting receivers.

        Delayed messages stay on disk; in memory they are lost, with a warning.
        """
        if self.queues.closed:
            return
        self.queues.report_delayed()
        self.queues.close()
        if self._own_store is not None:
            self._own_store.close()
        self.queues.publish()

    def __repr__(self) -> str:
        kind = "on disk" if self.durable else "in memory"
        return f"{type(self).__name__}({len(self.recipients):,} recipients, {kind})"

    def _publish(self, answer: R) -> R:
        self.queues.publish()
        return answer


def _directory(path: str | os.PathLike[str]) -> str:
    """The directory that was meant; `file:` may stand before it."""
    text = os.fspath(path)
    if _URL.match(text):
        raise InvalidParameterError(
            "path",
            text,
            "a directory of this machine, because a bus has no server; between machines, send to "
            "mailboxes: open_mailbox(url)",
        )
    return text.removeprefix("file:")


class AsyncMessageBus(AsyncClosing):
    """A `MessageBus` for asyncio, with the same methods. Both may be used at once."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self._boxes: dict[str, AsyncLocalMailbox[Any]] = {}

    async def send(
        self, *, to: str, sender: str, payload: Any, task_id: str | None = None, delay_ms: Any = 0
    ) -> SendResult:
        """See `MessageBus.send`."""
        queues = self.bus.queues
        return await self._publish(lambda: queues.send(to, sender, payload, task_id, delay_ms))

    async def cancel(self, message_id: str) -> bool:
        """See `MessageBus.cancel`."""
        return await self._publish(lambda: self.bus.queues.cancel(message_id))

    async def reschedule(self, message_id: str, delay_ms: Any) -> SendResult | None:
        """See `MessageBus.reschedule`."""
        return await self._publish(lambda: self.bus.queues.reschedule(message_id, delay_ms))

    async def deliver_due_messages(self) -> int:
        """See `MessageBus.deliver_due_messages`."""
        return await self._publish(self.bus.queues.deliver_due)

    async def delayed_count(self, recipient: str | None = None) -> int:
        """See `MessageBus.delayed_count`."""
        return self.bus.delayed_count(recipient)

    async def force_deliver_all_delayed(self) -> int:
        """See `MessageBus.force_deliver_all_delayed`."""
        return await self._publish(self.bus.queues.force)

    async def receive_next(self, recipient: str) -> Envelope | None:
        """See `MessageBus.receive_next`."""
        taken = await self._publish(lambda: self.bus.queues.receive(recipient))
        return next(iter(taken), None)

    async def wait_for_message(
        self, recipient: str, timeout: float | None = None
    ) -> Envelope | None:
        """See `MessageBus.wait_for_message`; a cancelled wait loses no message."""
        queues = self.bus.queues
        behind = queues.recipient(recipient).box
        box = self._boxes.get(recipient)
        if box is None or box.closed:
            box = self._boxes[recipient] = AsyncLocalMailbox(behind)
        while True:
            wait = limits.WAIT_SECONDS_MAX if timeout is None else timeout
            for message in await box.receive(wait_time_seconds=wait):
                if await message.acknowledge():
                    queues.publish()
                    return envelope(message, recipient)
            if timeout is not None or box.closed:
                return None

    async def drain(self, recipient: str | None = None) -> list[Envelope]:
        """See `MessageBus.drain`."""
        return await self._publish(lambda: self.bus.queues.drain(recipient))

    async def stats(self, recipient: str) -> Stats:
        """See `MessageBus.stats`."""
        return self.bus.stats(recipient)

    async def close(self) -> None:
        """See `MessageBus.close`."""
        self.bus.close()

    async def _publish(self, verb: Callable[[], R]) -> R:
        answer = await self.bus.queues.store.confirmed(verb)
        self.bus.queues.publish()
        return answer
