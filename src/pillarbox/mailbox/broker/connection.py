"""The connection of a mailbox to its broker, for threads and for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from pillarbox.core import limits
from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.async_channel import AsyncChannels, async_channels_to
from pillarbox.mailbox.broker.channel import channels_to
from pillarbox.mailbox.broker.errors import error_of
from pillarbox.mailbox.broker.pool import ANSWER_SECONDS_MAX
from pillarbox.mailbox.broker.wire import COMMANDS_MAX, Command, Declared, Failed, Receive, Send
from pillarbox.mailbox.runner import AsyncConnection, Interrupted, ParkingConnection

_SECOND_US = limits.SECOND_NS // 1_000
_BATCH_BYTES_MAX = 1 << 20  # of bodies combined; a single command may have more

Ask = Callable[[list[Command]], Awaitable[list[Any]]]


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


class Batcher:
    """Combines concurrent commands for one queue into one request with one confirmation.

    While a request is under way, new commands wait and go with the next one. So a single command
    is sent immediately, and thousands of concurrent ones take a few round trips. Calls `idle` when
    all are answered.
    """

    def __init__(self, ask: Ask, idle: Callable[[], object]) -> None:
        self._ask = ask
        self._idle = idle
        self._waiting: deque[tuple[Command, asyncio.Future[Any]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, command: Command) -> asyncio.Future[Any]:
        """Add a command and return a future for its result."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((command, outcome))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return outcome

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._send(self._next())
        finally:
            self._task = None
            self._idle()
            while self._waiting:  # only if cancelled: the event loop is closing
                self._waiting.popleft()[1].cancel()

    def _next(self) -> list[tuple[Command, asyncio.Future[Any]]]:
        batch: list[tuple[Command, asyncio.Future[Any]]] = []
        room = _BATCH_BYTES_MAX
        while self._waiting and len(batch) < COMMANDS_MAX:
            command, _ = self._waiting[0]
            if isinstance(command, Send):
                room -= sum(map(len, command.bodies))
            if room < 0 and batch:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send(self, batch: list[tuple[Command, asyncio.Future[Any]]]) -> None:
        try:
            results = await self._ask([command for command, _ in batch])
        except BaseException as error:
            for _, outcome in batch:
                if not outcome.done():
                    _fail(outcome, error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, outcome), result in zip(batch, results, strict=False):
            if outcome.done():
                continue
            if isinstance(result, Failed):
                outcome.set_exception(error_of(result))
            else:
                outcome.set_result(result.value)


def _fail(outcome: asyncio.Future[Any], error: BaseException) -> None:
    if isinstance(error, Exception):
        outcome.set_exception(error)
    else:
        outcome.cancel()


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
