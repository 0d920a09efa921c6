"""A `MessageBus` for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pillarbox.bus.bus import MessageBus
from pillarbox.bus.envelope import Envelope, envelope
from pillarbox.closing import AsyncClosing
from pillarbox.core import limits
from pillarbox.mailbox.local import AsyncLocalMailbox

P = ParamSpec("P")
R = TypeVar("R")


def _async(
    verb: Callable[Concatenate[MessageBus, P], R],
) -> Callable[Concatenate[AsyncMessageBus, P], Coroutine[Any, Any, R]]:
    """Return an async version of a method; it publishes events once they are confirmed."""

    @wraps(verb)
    async def method(self: AsyncMessageBus, /, *args: P.args, **options: P.kwargs) -> R:
        answer = await self.bus._store.confirmed(partial(verb, self.bus, *args, **options))
        self.bus._publish()
        return answer

    return method


class AsyncMessageBus(AsyncClosing):
    """A `MessageBus` for asyncio, with the same methods. Both may be used at once."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self._boxes: dict[str, AsyncLocalMailbox[Any]] = {}

    register = _async(MessageBus.register)
    unregister = _async(MessageBus.unregister)
    send = _async(MessageBus.send)
    cancel = _async(MessageBus.cancel)
    reschedule = _async(MessageBus.reschedule)
    deliver_due_messages = _async(MessageBus.deliver_due_messages)
    delayed_count = _async(MessageBus.delayed_count)
    force_deliver_all_delayed = _async(MessageBus.force_deliver_all_delayed)
    receive_next = _async(MessageBus.receive_next)
    drain = _async(MessageBus.drain)
    stats = _async(MessageBus.stats)
    dead_letters = _async(MessageBus.dead_letters)
    redrive = _async(MessageBus.redrive)

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

    async def close(self) -> None:
        """See `MessageBus.close`."""
        self.bus.close()
