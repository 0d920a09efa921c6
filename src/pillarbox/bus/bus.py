"""MessageBus: messages between named recipients, at once or after a delay, by threads or asyncio.

In memory by default; `MessageBus.open(path)` keeps messages and their schedule on disk. Nobody
has to drive it: whoever receives gets what is due by then, and who waits is woken in time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self, TypeVar

from pillarbox.bus.envelope import Envelope, SendResult, envelope
from pillarbox.bus.office import Office
from pillarbox.clock import Clock
from pillarbox.closing import AsyncClosing, Closing
from pillarbox.core import limits
from pillarbox.mailbox.async_local import AsyncLocalMailbox
from pillarbox.mailbox.ledger import DurableStore
from pillarbox.mailbox.protocol import DeadLetterPolicy, Stats
from pillarbox.mailbox.store import Store
from pillarbox.worker.dispatcher import Dispatcher

R = TypeVar("R")

DEAD_LETTERS = DeadLetterPolicy(5)


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
        self.office = Office(store or Store(clock), dead_letters, self.dispatcher)
        self._opened: DurableStore | None = None
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
        """A bus in a directory of its own, with all who were registered there before.

        Messages and their times survive the end of the process. Options are those of a mailbox
        on disk: `durability`, `clock` and so on.
        """
        store = DurableStore(path, **options)
        try:
            bus = cls(*recipients, dead_letters=dead_letters, dispatcher=dispatcher, store=store)
            bus.office.requeue_orphans()
            bus._opened = store
        except BaseException:
            store.close()
            raise
        return bus

    @property
    def recipients(self) -> tuple[str, ...]:
        """All who are registered."""
        return tuple(self.office.recipients)

    @property
    def durable(self) -> bool:
        """Whether messages outlive this process."""
        return self.office.durable

    def register(self, *recipients: str) -> None:
        """Let these be written to. Registering again changes nothing."""
        for name in recipients:
            self.office.register(name)

    def unregister(self, recipient: str) -> int:
        """Forget a recipient, its messages and its dead letters; how many messages it had."""
        return self.office.unregister(recipient)

    def send(
        self,
        *,
        to: str,
        sender: str,
        payload: Any,
        task_id: str | None = None,
        delay_ms: Any = 0,
    ) -> SendResult:
        """Send any JSON value, to be received at once or after `delay_ms` milliseconds.

        A delay that is no number, or negative, is none; one that never ends is refused.
        """
        return self._told(self.office.send(to, sender, payload, task_id, delay_ms))

    def cancel(self, message_id: str) -> bool:
        """Take a delayed message back; False if it was delivered before, or never was."""
        return self._told(self.office.cancel(message_id))

    def reschedule(self, message_id: str, delay_ms: Any) -> SendResult | None:
        """Give a delayed message a new delay, from now on; None if it was delivered before."""
        return self._told(self.office.reschedule(message_id, delay_ms))

    def deliver_due_messages(self) -> int:
        """Let what is due join its recipients' queues, by time, then as sent; how many did."""
        return self._told(self.office.deliver_due())

    def delayed_count(self, recipient: str | None = None) -> int:
        """How many wait for their time: all of them, or one recipient's."""
        return self.office.delayed(recipient)

    def force_deliver_all_delayed(self) -> int:
        """Deliver everything that is delayed now, in the order of its times; how many."""
        return self._told(self.office.force())

    def receive_next(self, recipient: str) -> Envelope | None:
        """The next message of a recipient, for good; None if there is none."""
        return self._told(next(iter(self.office.take(recipient)), None))

    def wait_for_message(self, recipient: str, timeout: float | None = None) -> Envelope | None:
        """`receive_next`, but wait until there is one; None if the seconds are over first."""
        box = self.office.recipient(recipient).box
        while True:
            wait = limits.WAIT_SECONDS_MAX if timeout is None else timeout
            taken = self._told(self.office.take(recipient, 1, wait))
            if taken or timeout is not None or box.closed:
                return next(iter(taken), None)

    def drain(self, recipient: str | None = None) -> list[Envelope]:
        """Everything that can be received now: of one recipient, or of all, one by one."""
        return self._told(self.office.drain(recipient))

    def stats(self, recipient: str) -> Stats:
        """A recipient's messages by state: ready, scheduled, in flight, dead."""
        return self._told(self.office.recipient(recipient).box.stats())

    def dead_letters(self, recipient: str) -> list[Envelope]:
        """What a recipient's handler failed to handle too often; it is left where it is."""
        dead = self.office.recipient(recipient).box.dead_letters
        seen = dead.peek(limits.MESSAGES_MAX) if dead is not None else ()
        return [envelope(message, recipient) for message in seen]  # type: ignore[arg-type]

    def redrive(self, recipient: str) -> int:
        """Give a recipient its dead letters again; how many."""
        dead = self.office.recipient(recipient).box.dead_letters
        count = dead.redrive() if dead is not None else 0
        self.office.settled(recipient)
        return count

    def close(self) -> None:
        """Wake all who wait. What is delayed is kept on disk, or lost with a warning."""
        if self.office.closed:
            return
        self.office.leave()
        self.office.close()
        if self._opened is not None:
            self._opened.close()
        self.office.announce()

    def __repr__(self) -> str:
        kind = "on disk" if self.durable else "in memory"
        return f"{type(self).__name__}({len(self.recipients):,} recipients, {kind})"

    def _told(self, answer: R) -> R:
        self.office.announce()
        return answer


class AsyncMessageBus(AsyncClosing):
    """A `MessageBus` for asyncio: the same verbs, to be awaited. Both may be used at once."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self._boxes: dict[str, AsyncLocalMailbox[Any]] = {}

    async def send(
        self,
        *,
        to: str,
        sender: str,
        payload: Any,
        task_id: str | None = None,
        delay_ms: Any = 0,
    ) -> SendResult:
        """See `MessageBus.send`."""
        office = self.bus.office
        return await self._told(lambda: office.send(to, sender, payload, task_id, delay_ms))

    async def cancel(self, message_id: str) -> bool:
        """See `MessageBus.cancel`."""
        return await self._told(lambda: self.bus.office.cancel(message_id))

    async def reschedule(self, message_id: str, delay_ms: Any) -> SendResult | None:
        """See `MessageBus.reschedule`."""
        return await self._told(lambda: self.bus.office.reschedule(message_id, delay_ms))

    async def deliver_due_messages(self) -> int:
        """See `MessageBus.deliver_due_messages`."""
        return await self._told(self.bus.office.deliver_due)

    async def delayed_count(self, recipient: str | None = None) -> int:
        """See `MessageBus.delayed_count`."""
        return self.bus.delayed_count(recipient)

    async def force_deliver_all_delayed(self) -> int:
        """See `MessageBus.force_deliver_all_delayed`."""
        return await self._told(self.bus.office.force)

    async def receive_next(self, recipient: str) -> Envelope | None:
        """See `MessageBus.receive_next`."""
        taken = await self._told(lambda: self.bus.office.take(recipient))
        return next(iter(taken), None)

    async def wait_for_message(
        self, recipient: str, timeout: float | None = None
    ) -> Envelope | None:
        """See `MessageBus.wait_for_message`; what a cancelled wait was given is given back."""
        office = self.bus.office
        behind = office.recipient(recipient).box
        box = self._boxes.get(recipient)
        if box is None or box.closed:
            box = self._boxes[recipient] = AsyncLocalMailbox(behind)
        while True:
            wait = limits.WAIT_SECONDS_MAX if timeout is None else timeout
            for message in await box.receive(wait_time_seconds=wait):
                if await message.acknowledge():
                    office.announce()
                    return envelope(message, recipient)
            if timeout is not None or box.closed:
                return None

    async def drain(self, recipient: str | None = None) -> list[Envelope]:
        """See `MessageBus.drain`."""
        return await self._told(lambda: self.bus.office.drain(recipient))

    async def stats(self, recipient: str) -> Stats:
        """See `MessageBus.stats`."""
        return self.bus.stats(recipient)

    async def close(self) -> None:
        """See `MessageBus.close`."""
        self.bus.close()

    async def _told(self, verb: Callable[[], R]) -> R:
        answer = await self.bus.office.store.confirmed(verb)
        self.bus.office.announce()
        return answer
