"""Request and reply over two mailboxes, matched by message id.

Any number of threads may call `ask` on one `RequestClient`. One of them at a time receives for all
and gives the others their replies; once it has its own, it passes that role on. So no thread
polls, and the client needs no thread of its own. `AsyncRequestClient` has one receiving task.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from threading import get_ident
from typing import Any, Generic, Self, TypeVar, Unpack

from msgspec import Struct, field

from pillarbox.clock import Clock, SystemClock
from pillarbox.closing import Closing
from pillarbox.core import limits
from pillarbox.core.errors import MailboxClosedError
from pillarbox.core.queue import NEVER
from pillarbox.mailbox.answers import new_reply_queue
from pillarbox.mailbox.message import AsyncMessage, Message
from pillarbox.mailbox.protocol import AskOptions, AsyncMailbox, Mailbox
from pillarbox.mailbox.request_steps import RequestSteps
from pillarbox.mailbox.runner import run_awaiting, run_blocking
from pillarbox.mailbox.url import open_async_mailbox, open_mailbox
from pillarbox.mailbox.waiters import closed_gate, new_future, open_gate
from pillarbox.mutex import Mutex, now_or_soon, reentrant_call

Req = TypeVar("Req")
Rep = TypeVar("Rep")

_BATCH = 10  # every backend supports this batch size
_POLL_SECONDS_MAX = 20  # every backend supports this wait time


def _reply_mailbox(url: str, requests: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the URL of a client's own reply mailbox, and the options to open it with."""
    # The name is the last part of the path; it may occur in the query, too.
    own_url = re.sub(rf"{re.escape(requests)}(?=/?(\?|$))", new_reply_queue(requests), url, count=1)
    return own_url, options | {"dead_letters": None, "create": True}


class _Ask(Struct, eq=False):
    """One waiting caller. `answer` and `leads` are set before its gate is opened."""

    request_id: str | None = None
    answer: Message[Any] | None = None
    acknowledged: bool = False
    leads: bool = False  # it receives for all callers
    thread: int = field(default_factory=get_ident)
    gate: threading.Lock = field(default_factory=closed_gate)


class RequestClient(RequestSteps, Closing, Generic[Req, Rep]):
    """Sends requests to one mailbox and waits for their replies in another.

    Examples:
        >>> import threading
        >>> from pillarbox import open_mailbox
        >>> sums = open_mailbox("memory:sums", list[int])
        >>> totals = open_mailbox("memory:totals", int)
        >>> def work():
        ...     for request in sums.receive(wait_time_seconds=5):
        ...         request.reply(sum(request.body))
        ...         request.acknowledge()
        >>> worker = threading.Thread(target=work)
        >>> worker.start()
        >>> RequestClient(sums, totals).ask([2, 3], timeout=5)
        5
        >>> worker.join()

    Give each client its own `replies` mailbox: late replies are then dropped. With `shared=True`,
    replies that may belong to another client are returned uncounted. `reply_to` is the name by
    which the consumers of the requests find `replies` (default: its name).
    """

    def __init__(
        self,
        requests: Mailbox[Req],
        replies: Mailbox[Rep],
        *,
        reply_to: str | None = None,
        shared: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(requests, replies, reply_to, shared, Mutex())
        self._clock: Clock = clock or SystemClock()
        self._leader = 0  # the thread that receives for all, or is about to

    @classmethod
    def open(
        cls, url: str, request_type: Any = Any, reply_type: Any = Any, **options: Any
    ) -> RequestClient[Any, Any]:
        """Open a client of the mailbox at `url`, with its own reply mailbox next to it.

        Both are opened with these options, but the reply mailbox has no dead-letter queue. `close`
        deletes it.
        """
        requests = open_mailbox(url, request_type, **options)
        own_url, own = _reply_mailbox(url, requests.name, options)
        try:
            replies: Any = open_mailbox(own_url, reply_type, **own)
        except BaseException:
            requests.close()
            raise
        client = RequestClient(requests, replies)
        client._opened = (replies, requests)
        try:
            run_blocking(client._renew(client._clock.now()))
        except BaseException:
            client.close()
            raise
        return client

    def close(self) -> None:
        """Close the mailboxes that `open` opened, and delete the reply mailbox."""
        now_or_soon(lambda: run_blocking(self._end()))

    def ask(self, body: Req, *, timeout: float, **options: Unpack[AskOptions]) -> Rep:
        """Send a request, wait up to `timeout` seconds for the reply, and return its body.

        Raises `TimeoutError` if there is no reply in time; the request is not withdrawn. Raises
        `RequestRejectedError` if a worker dead-lettered the request.
        """
        if self._leader == get_ident():  # a signal handler in the receiving thread would deadlock
            raise reentrant_call()
        until = self._clock.now() + limits.seconds("timeout", timeout, limits.WAIT_SECONDS_MAX)
        run_blocking(self._renew(self._clock.now()))
        ask = _Ask()
        try:
            run_blocking(self._send(ask, body, options))
            self._wait(ask, until)
        finally:
            self._leave(ask)
        if ask.answer is None:
            raise self._no_answer(ask, timeout)
        if not ask.acknowledged:
            run_blocking(self._acknowledge([ask]))
        answer: Rep = self._body_of(ask.answer)
        return answer

    def _sent(self, ask: _Ask) -> None:
        if ask.answer is None and not self._leader:
            self._leader, ask.leads = get_ident(), True

    def _wait(self, ask: _Ask, until: int) -> None:
        while ask.answer is None:
            if ask.leads:
                self._lead(ask, until)
                return
            if self._clock.now() >= until:
                return
            self._clock.wait(ask.gate, until)

    def _leave(self, ask: _Ask) -> None:
        """Remove a caller that stopped waiting; if it was the receiver, appoint another."""
        with self._lock:
            self._matching.leave(ask)
            if not ask.leads:
                return
            for other in self._matching.asks.values():
                if other.answer is None:
                    self._leader, other.leads = other.thread, True
                    open_gate(other.gate)
                    return
            self._leader = 0

    def _lead(self, ask: _Ask, until: int) -> None:
        """Receive for all callers until this one has its reply or times out."""
        kept: list[Message[Rep]] = []  # other clients' replies, returned after a pause
        give_back_at = NEVER
        try:
            while True:
                left_ns = max(0, min(until, give_back_at) - self._clock.now())
                messages = self._replies.receive(
                    max_messages=_BATCH,
                    wait_time_seconds=min(left_ns / limits.SECOND_NS, _POLL_SECONDS_MAX),
                )
                again = self._distribute(messages)
                now = self._clock.now()
                if ask.answer is not None or now >= until:
                    kept += again
                    return
                if now >= give_back_at:
                    run_blocking(self._release(kept))
                    kept, give_back_at = [], NEVER
                for message in again:
                    kept.append(message)
                    give_back_at = min(give_back_at, now + self._pause(message))
        finally:
            run_blocking(self._release(kept))

    def _distribute(self, messages: Sequence[Message[Rep]]) -> list[Message[Rep]]:
        """Give each reply to its caller; return replies of other clients that keep coming back."""
        with self._lock:
            answered, unmatched = self._matching.take(messages)
            for ask in answered:
                ask.acknowledged = True
        try:
            run_blocking(self._acknowledge(answered))
        finally:  # even if the client was closed meanwhile
            for ask in answered:
                open_gate(ask.gate)
        return run_blocking(self._settle_unmatched(unmatched))

    def _pause(self, message: Message[Rep]) -> int:
        with self._lock:
            return self._matching.pause_ns(message)


class _AsyncAsk(Struct, eq=False):
    """One waiting task."""

    request_id: str | None = None
    answer: AsyncMessage[Any] | None = None
    done: asyncio.Future[None] = field(default_factory=new_future)


class AsyncRequestClient(RequestSteps, Generic[Req, Rep]):
    """Sends requests to one mailbox and waits for their replies in another.

        async with AsyncRequestClient.open("http://localhost:9324/sums", list[int], int) as client:
            total = await client.ask([2, 3], timeout=5)

    The arguments are those of `RequestClient`. Any number of tasks of one event loop may ask.
    """

    def __init__(
        self,
        requests: AsyncMailbox[Req],
        replies: AsyncMailbox[Rep],
        *,
        reply_to: str | None = None,
        shared: bool = False,
    ) -> None:
        super().__init__(requests, replies, reply_to, shared, nullcontext())
        self._receiver: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()  # that acknowledge or return messages
        self._kept: list[AsyncMessage[Rep]] = []  # other clients' replies, returned after a pause
        self._give_back_at = math.inf

    @classmethod
    def open(
        cls, url: str, request_type: Any = Any, reply_type: Any = Any, **options: Any
    ) -> AsyncRequestClient[Any, Any]:
        """Open a client of the mailbox at `url`, with its own reply mailbox next to it.

        Both are opened on first use, with these options, but the reply mailbox has no dead-letter
        queue. `close` deletes it.
        """
        requests = open_async_mailbox(url, request_type, **options)
        own_url, own = _reply_mailbox(url, requests.name, options)
        replies: AsyncMailbox[Any] = open_async_mailbox(own_url, reply_type, **own)
        client: AsyncRequestClient[Any, Any] = AsyncRequestClient(requests, replies)
        client._opened = (replies, requests)
        return client

    async def ask(self, body: Req, *, timeout: float, **options: Unpack[AskOptions]) -> Rep:
        """Send a request, wait up to `timeout` seconds for the reply, and return its body.

        Raises `TimeoutError` if there is no reply in time; the request is not withdrawn. Raises
        `RequestRejectedError` if a worker dead-lettered the request.
        """
        limits.seconds("timeout", timeout, limits.WAIT_SECONDS_MAX)
        now = asyncio.get_running_loop().time()
        await run_awaiting(self._renew(int(now * limits.SECOND_NS)))
        ask = _AsyncAsk()
        until = asyncio.get_running_loop().time() + timeout
        try:
            await run_awaiting(self._send(ask, body, options))
            if ask.answer is not None:
                await run_awaiting(self._acknowledge([ask]))
            else:
                if self._receiver is None:
                    self._receiver = asyncio.create_task(self._receive())
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await ask.done
        finally:
            self._matching.leave(ask)
            if not self._matching.asks:
                self._stop_receiving()
        if ask.answer is None:
            raise self._no_answer(ask, timeout)
        answer: Rep = self._body_of(ask.answer)
        return answer

    async def _receive(self) -> None:
        """Receive for all callers until none is waiting."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                left = max(0.0, self._give_back_at - loop.time())
                messages: Sequence[AsyncMessage[Rep]] = await self._replies.receive(
                    max_messages=_BATCH, wait_time_seconds=min(left, _POLL_SECONDS_MAX)
                )
                answered, unmatched = self._matching.take(messages)
                for ask in answered:
                    if not ask.done.done():
                        ask.done.set_result(None)
                if loop.time() >= self._give_back_at:  # now, as another client waits first in line
                    await asyncio.shield(self._spawn(self._give_back()))
                await asyncio.shield(self._spawn(self._settle(answered, unmatched)))
        except Exception as error:  # noqa: BLE001 - the callers raise it
            self._receiver = None
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Raise this error in every waiting caller."""
        for ask in self._matching.asks.values():
            if not ask.done.done():
                ask.done.set_exception(error)

    async def _settle(self, answered: list[_AsyncAsk], unmatched: list[Any]) -> None:
        await run_awaiting(self._acknowledge(answered))
        now = asyncio.get_running_loop().time()
        for message in await run_awaiting(self._settle_unmatched(unmatched)):
            self._kept.append(message)
            pause = self._matching.pause_ns(message) / limits.SECOND_NS
            self._give_back_at = min(self._give_back_at, now + pause)
        if self._receiver is None:
            await self._give_back()

    async def _give_back(self) -> None:
        """Return other clients' replies to the mailbox."""
        kept, self._kept, self._give_back_at = self._kept, [], math.inf
        await run_awaiting(self._release(kept))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _stop_receiving(self) -> None:
        if self._receiver is not None:
            self._receiver.cancel()
            self._receiver = None
        if self._kept:
            self._spawn(self._give_back())

    async def close(self) -> None:
        """Close the mailboxes that `open` opened, and delete the reply mailbox."""
        self._stop_receiving()
        self._fail(MailboxClosedError("the client was closed before the reply came"))
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await run_awaiting(self._end())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
