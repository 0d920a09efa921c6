"""`RequestClient` for asyncio. While someone waits, one task receives the answers for all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from pillarbox.core import limits
from pillarbox.core.errors import MailboxConnectionError, MailboxError, UnknownOutcomeError
from pillarbox.logger import logger
from pillarbox.mailbox.matching import Matching
from pillarbox.mailbox.message import AsyncMessage
from pillarbox.mailbox.protocol import AsyncMailbox
from pillarbox.mailbox.request import BATCH, KEEP_NS, POLL_SECONDS_MAX, no_answer, reply_mailbox
from pillarbox.mailbox.url import open_async_mailbox

Req = TypeVar("Req")
Rep = TypeVar("Rep")


class _Ask:
    """One caller that waits."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.answer: AsyncMessage[Any] | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class AsyncRequestClient(Generic[Req, Rep]):
    """Sends requests to one mailbox and waits for their answers in another.

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
        self._requests = requests
        self._replies = replies
        self._reply_to = replies.name if reply_to is None else limits.text("reply_to", reply_to)
        self._matching: Matching[_Ask] = Matching(shared=shared)
        self._receiver: asyncio.Task[None] | None = None
        self._returns: set[asyncio.Task[Any]] = set()  # of other clients' answers
        self._opened: tuple[AsyncMailbox[Any], ...] = ()
        self._keep_at = 0.0

    @classmethod
    def open(
        cls, url: str, request_type: Any = Any, reply_type: Any = Any, **options: Any
    ) -> AsyncRequestClient[Any, Any]:
        """A client of the mailbox that a URL names, with one of its own beside it for answers.

        Both are opened, when they are first used, with these options, but the one for answers has
        no dead letters. It ends with the client: `close` deletes it.
        """
        requests = open_async_mailbox(url, request_type, **options)
        own_url, own = reply_mailbox(url, requests.name, options)
        replies: AsyncMailbox[Any] = open_async_mailbox(own_url, reply_type, **own)
        client: AsyncRequestClient[Any, Any] = AsyncRequestClient(requests, replies)
        client._opened = (replies, requests)
        return client

    async def ask(
        self,
        body: Req,
        *,
        timeout: float,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
    ) -> Rep:
        """Send a request and wait for its answer, for `timeout` seconds; the answer's body.

        `TimeoutError` if none came in time; the request is not taken back then.
        """
        limits.seconds("timeout", timeout, limits.WAIT_SECONDS_MAX)
        await self._keep()
        ask = _Ask()
        until = asyncio.get_running_loop().time() + timeout
        request_id = await self._send(
            ask,
            body,
            delay_seconds=delay_seconds,
            priority=priority,
            attributes=attributes,
            group=group,
        )
        try:
            if ask.answer is not None:
                await self._acknowledge([ask])
            else:
                if self._receiver is None:
                    self._receiver = asyncio.create_task(self._receive())
                async with asyncio.timeout_at(until):
                    await ask.done
        except TimeoutError:
            if ask.answer is None:
                where = self._requests.name, self._reply_to
                raise no_answer(request_id, *where, timeout) from None
        finally:
            del self._matching.asks[request_id]
            if not self._matching.asks and self._receiver is not None:
                self._receiver.cancel()
                self._receiver = None
        assert ask.answer is not None
        answer: Rep = ask.answer.body
        return answer

    async def _send(self, ask: _Ask, body: Req, **options: Any) -> str:
        ticket = self._matching.begin()
        request_id: str | None = None
        try:
            request_id = await self._requests.send(body, reply_to=self._reply_to, **options)
            return request_id
        finally:
            strays = self._matching.end(ticket, request_id, ask)
            if strays:
                await self._put_away(strays)

    async def _receive(self) -> None:
        """Receive for all, until nobody waits any more."""
        try:
            while True:
                messages: Sequence[AsyncMessage[Rep]] = await self._replies.receive(
                    max_messages=BATCH, wait_time_seconds=POLL_SECONDS_MAX
                )
                answered, strays = self._matching.take(messages)
                for ask in answered:
                    if not ask.done.done():
                        ask.done.set_result(None)
                await asyncio.shield(self._spawn(self._settle(answered, strays)))
        except MailboxError as error:
            self._receiver = None
            for ask in self._matching.asks.values():
                if not ask.done.done():
                    ask.done.set_exception(error)

    async def _settle(self, answered: list[_Ask], strays: list[Any]) -> None:
        await self._acknowledge(answered)
        if strays:
            await self._put_away(strays)

    async def _acknowledge(self, answered: list[_Ask]) -> None:
        messages = [ask.answer for ask in answered if ask.answer is not None]
        try:
            if messages:
                await self._replies.acknowledge_many(messages)
        except (MailboxConnectionError, UnknownOutcomeError) as error:
            # They come again, and are dropped then.
            logger.warning("answer not acknowledged", mailbox=self._replies.name, error=str(error))

    async def _put_away(self, strays: list[AsyncMessage[Rep]]) -> None:
        """Drop what is ours and give back what may be another's."""
        found = self._matching.sort(strays, self._replies.name)
        if found.ours:
            await self._replies.acknowledge_many(found.ours)
        if found.theirs:
            await self._replies.release_many(found.theirs)
        for message in found.again:
            self._spawn(self._give_back_later(message))

    async def _give_back_later(self, message: AsyncMessage[Rep]) -> None:
        await asyncio.sleep(self._matching.pause_ns(message) / limits.SECOND_NS)
        await message.release()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)
        return task

    async def _keep(self) -> None:
        """Say that we live, before what we have for answers is taken for left behind."""
        replies: Any = self._replies
        now = asyncio.get_running_loop().time()
        if self._opened and now >= self._keep_at:
            self._keep_at = now + KEEP_NS / limits.SECOND_NS
            await replies._keep_for_answers()

    async def close(self) -> None:
        """Close what `open` opened, and delete the mailbox for answers with what is in it."""
        if self._receiver is not None:
            self._receiver.cancel()
            self._receiver = None
        if self._returns:
            await asyncio.gather(*self._returns, return_exceptions=True)
        replies: Any = self._replies
        if self._opened and self._keep_at and not replies.closed:
            try:
                await replies._end_with_client()
            except MailboxError as error:
                logger.warning(
                    "the mailbox for answers is left behind", mailbox=replies.name, error=str(error)
                )
        for mailbox in self._opened:
            await mailbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
