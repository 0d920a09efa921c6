"""A `MessageBus` for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pillarbox.bus.bus import MessageBus
from pillarbox.bus.envelope import Envelope, SendResult, envelope
from pillarbox.closing import AsyncClosing
from pillarbox.core import limits
from pillarbox.mailbox.local import AsyncLocalMailbox
from pillarbox.mailbox.protocol import Stats

R = TypeVar("R")


class AsyncMessageBus(AsyncClosing):
    """A `MessageBus` for asyncio, with the same methods. Both may be used at once."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self._boxes: dict[str, AsyncLocalMailbox[Any]] = {}

    async def send(
        self, *, to: str, sender: str, payload: Any, task_id: str | None = None, delay_ms: Any = 0
    ) -> SendResult:
        """See `MessageBus.send`."""
        return await self._confirmed(
            lambda: self.bus.send(
                to=to, sender=sender, payload=payload, task_id=task_id, delay_ms=delay_ms
            )
        )

    async def cancel(self, message_id: str) -> bool:
        """See `MessageBus.cancel`."""
        return await self._confirmed(lambda: self.bus.cancel(message_id))

    async def reschedule(self, message_id: str, delay_ms: Any) -> SendResult | None:
        """See `MessageBus.reschedule`."""
        return await self._confirmed(lambda: self.bus.reschedule(message_id, delay_ms))

    async def deliver_due_messages(self) -> int:
        """See `MessageBus.deliver_due_messages`."""
        return await self._confirmed(self.bus.deliver_due_messages)

    async def delayed_count(self, recipient: str | None = None) -> int:
        """See `MessageBus.delayed_count`."""
        return self.bus.delayed_count(recipient)

    async def force_deliver_all_delayed(self) -> int:
        """See `MessageBus.force_deliver_all_delayed`."""
        return await self._confirmed(self.bus.force_deliver_all_delayed)

    async def receive_next(self, recipient: str) -> Envelope | None:
        """See `MessageBus.receive_next`."""
        return await self._confirmed(lambda: self.bus.receive_next(recipient))

    async def wait_for_message(
        self, recipient: str, timeout: float | None = None
    ) -> Envelope | None:
        """See `MessageBus.wait_for_message`; a cancelled wait loses no message."""
        behind = self.bus._recipient(recipient).box
        box = self._boxes.get(recipient)
        if box is None or box.closed:
            box = self._boxes[recipient] = AsyncLocalMailbox(behind)
        while True:
            wait = limits.WAIT_SECONDS_MAX if timeout is None else timeout
            for message in await box.receive(wait_time_seconds=wait):
                if await message.acknowledge():
                    self.bus._publish()
                    return envelope(message, recipient)
            if timeout is not None or box.closed:
                return None

    async def drain(self, recipient: str | None = None) -> list[Envelope]:
        """See `MessageBus.drain`."""
        return await self._confirmed(lambda: self.bus.drain(recipient))

    async def stats(self, recipient: str) -> Stats:
        """See `MessageBus.stats`."""
        return self.bus.stats(recipient)

    async def close(self) -> None:
        """See `MessageBus.close`."""
        self.bus.close()

    async def _confirmed(self, verb: Callable[[], R]) -> R:
        """Run a verb without blocking the event loop; publish its events once it is confirmed."""
        answer = await self.bus._store.confirmed(verb)
        self.bus._publish()
        return answer
