"""Channels to a broker for asyncio: the counterpart of `channel`, on one event loop.

A cancelled receive half-closes its connection; if the response was already under way, its messages
are returned to the front of the queue, uncounted.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.answer import Answer, AnswerReader, results_of
from pillarbox.mailbox.broker.pool import (
    ANSWER_SECONDS_MAX,
    CONNECT_SECONDS_MAX,
    BaseChannel,
    ChannelPool,
)
from pillarbox.mailbox.broker.wire import Command, Delivered, Release, decode_results
from pillarbox.mailbox.runner import run_async

_LEFTOVER_SECONDS_MAX = 5.0  # how long to wait for the response to a cancelled receive


class _Protocol(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self._reader = AnswerReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._reader.feed(data)
        except ConnectionError as error:
            self._fail(error)
            return
        if answer is None:
            return
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
        if answer.last or waiting is None:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("the broker closed the connection"))

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            failure = error if isinstance(error, OSError) else ConnectionResetError(str(error))
            waiting.set_exception(failure)
        self.close()

    def ask(self, request: bytes, seconds: float) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        self._waiting = waiting = loop.create_future()
        timer = loop.call_later(seconds, self._fail, TimeoutError("no response in time"))
        waiting.add_done_callback(lambda _: timer.cancel())
        assert self._transport is not None
        self._transport.write(request)
        return waiting

    def hang_up(self, leftover: Callable[[Answer], object]) -> None:
        """Half-close the connection, and pass a response that still arrives to `leftover`."""
        if self._transport is None or self._transport.is_closing():
            return
        if not self._transport.can_write_eof():  # TLS can't half-close: read nothing more
            self.close()
            return
        loop = asyncio.get_running_loop()
        self._waiting = rest = loop.create_future()
        timer = loop.call_later(_LEFTOVER_SECONDS_MAX, self.close)

        def arrived(done: asyncio.Future[Answer]) -> None:
            timer.cancel()
            if not done.cancelled() and done.exception() is None:
                leftover(done.result())

        rest.add_done_callback(arrived)
        self._transport.write_eof()

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()  # TLS would wait for close_notify


class _Channel(BaseChannel):
    """A channel: one connection at a time, and an identity that survives reconnects."""

    __slots__ = ("_protocol",)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._protocol: _Protocol | None = None

    async def exchange(self, head: bytes, body: bytes, seconds: float) -> Answer:
        protocol = self._protocol
        if protocol is None or not protocol.open:
            protocol = self._protocol = await self._connect()
        self.began = True
        return await protocol.ask(b"%b%d\r\n\r\n%b" % (head, len(body), body), seconds)

    async def _connect(self) -> _Protocol:
        address = self.address
        async with asyncio.timeout(CONNECT_SECONDS_MAX):  # wait_for may lose a cancellation
            _, protocol = await asyncio.get_running_loop().create_connection(
                _Protocol,
                address.host,
                address.port,
                ssl=address.tls,
                server_hostname=address.host if address.tls else None,
            )
        return protocol

    def hang_up(self, leftover: Callable[[Answer], object]) -> None:
        if self._protocol is not None:
            self._protocol.hang_up(leftover)

    def close(self) -> None:
        if self._protocol is not None:
            self._protocol.close()


class AsyncChannels(ChannelPool[_Channel]):
    """The channels of one event loop to one broker."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, _Channel)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def ask(
        self, queue: str, commands: Sequence[Command], seconds: float = ANSWER_SECONDS_MAX
    ) -> list[Any]:
        """Send these commands and return the results; raise if a single command failed."""
        channel = self.take()

        async def do(step: float | tuple[bytes, bytes]) -> Answer | None:
            if isinstance(step, tuple):
                return await channel.exchange(*step, seconds)
            await asyncio.sleep(step)
            return None

        try:
            answer = await run_async(do, self.exchange(channel, queue, commands))
        except asyncio.CancelledError:
            channel.hang_up(lambda answer: self._return_messages(queue, answer))
            raise
        except BaseException:
            channel.close()
            raise
        self.put_back(channel)
        return results_of(answer, self.address)

    def _return_messages(self, queue: str, answer: Answer) -> None:
        """Return undelivered messages to their queue."""
        if answer.status != 200:
            return
        for result in decode_results(answer.body):
            if isinstance(result, Delivered) and result.value:
                handles = [delivery.handle for delivery in reversed(result.value)]
                self.spawn(self.ask(queue, [Release(handles, to_front=True)]))

    def spawn(self, work: Any) -> None:
        """Run in the background; keep a reference, because the event loop does not."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Address, AsyncChannels]] = (
    weakref.WeakKeyDictionary()
)


def async_channels_to(address: Address) -> AsyncChannels:
    """Return the channels of the running event loop to this broker."""
    known = _loops.setdefault(asyncio.get_running_loop(), {})
    channels = known.get(address)
    if channels is None:
        channels = known[address] = AsyncChannels(address)
    return channels
