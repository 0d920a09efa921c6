"""The connection of a mailbox to its broker, for threads and for asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from pillarbox.core import limits
from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.async_channel import AsyncChannels, async_channels_to
from pillarbox.mailbox.broker.batcher import Batcher
from pillarbox.mailbox.broker.channel import channels_to
from pillarbox.mailbox.broker.retry import ANSWER_SECONDS_MAX
from pillarbox.mailbox.broker.wire import Command, Declared, Receive
from pillarbox.mailbox.runner import AsyncConnection, Interrupted, ParkingConnection

_SECOND_US = limits.SECOND_NS // 1_000


class Call(Struct, frozen=True, gc=False):
    """One command for one queue. A receive ends when its owner is closed."""

    queue: str
    command: Command
    owner: Any = None


class BrokerConnection(ParkingConnection):
    """A connection over the channels that all mailboxes of this process share."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._channels = channels_to(address)
        self._channels.enter()
        self._closed = False

    def do(self, request: Call) -> Any:
        queue, command = request.queue, request.command
        if command.__class__ is Receive:
            seconds, ask = _answer_seconds(command), self._channels.ask
            return self._park(
                request.owner,
                lambda parked: ask(queue, (command,), seconds=seconds, parked=parked)[0].value,
            )
        result = self._channels.ask(queue, (command,))[0]
        if result.__class__ is Declared:
            self._channels.instance = result.instance
        return result.value

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._channels.leave()


class AsyncBrokerConnection(AsyncConnection):
    """A connection over the channels that all mailboxes of one event loop share."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._channels: AsyncChannels | None = None
        self._batchers: dict[str, Batcher] = {}  # by queue, while requests are under way
        self._polls: dict[asyncio.Task[Any], Any] = {}  # long polls, and their verbs
        self._closed = False

    async def do(self, request: Call) -> Any:
        channels = self._here()
        if isinstance(request.command, Receive):
            return await self._receive(request, request.command)
        value = await self._batcher(request.queue).put(request.command)
        if isinstance(value, Declared):
            channels.instance = value.instance
        return value

    def _batcher(self, queue: str) -> Batcher:
        batcher = self._batchers.get(queue)
        if batcher is None:

            def ask(commands: list[Command]) -> Any:
                return self._here().ask(queue, commands)

            batcher = Batcher(ask, lambda: self._batchers.pop(queue, None))
            self._batchers[queue] = batcher
        return batcher

    async def _receive(self, call: Call, command: Receive) -> Any:
        """Run one long poll in its own task, so that `close` can end it."""
        asking = self._here().ask(call.queue, [command], _answer_seconds(command))
        poll = asyncio.get_running_loop().create_task(asking)
        self._polls[poll] = call.owner
        try:
            (result,) = await poll
        except asyncio.CancelledError:
            if call.owner.closed and poll.cancelled():
                raise Interrupted from None
            raise
        finally:
            del self._polls[poll]
        return result.value

    async def wake(self, verbs: Any) -> None:
        for poll, owner in list(self._polls.items()):
            if owner is verbs:
                poll.cancel()

    async def close(self) -> None:
        if self._channels is not None and not self._closed:
            self._channels.leave()
            await asyncio.sleep(0)  # let the connections close
        self._closed = True

    def _here(self) -> AsyncChannels:
        """Return the channels of the running event loop; raise if it is not the mailbox's."""
        if self._moved() or self._channels is None:
            self._batchers = {}
            self._channels = async_channels_to(self._address)
            self._channels.users += not self._closed
        return self._channels


def _answer_seconds(command: Receive) -> float:
    return command.wait_us / _SECOND_US + ANSWER_SECONDS_MAX
