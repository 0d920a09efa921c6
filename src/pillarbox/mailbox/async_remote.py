"""`AsyncRemoteMailbox`: `RemoteMailbox` for asyncio, over the same verbs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from pillarbox.closing import AsyncClosing
from pillarbox.mailbox.iteration import AsyncIteration
from pillarbox.mailbox.message import AsyncMessage, Undecodable
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.remote import RemoteParts
from pillarbox.mailbox.runner import AsyncConnection, Runnable, run_async
from pillarbox.mailbox.verbs import Verbs

T = TypeVar("T")
R = TypeVar("R")


class AsyncRemoteMailbox(RemoteParts[T], AsyncIteration[T], AsyncClosing, Generic[T]):
    """A mailbox behind a server, for asyncio.

    It is opened by its first verb, by `async with`, or by `await mailbox.open()`, and belongs to
    the event loop that did so. Until then `dead_letters` is None.
    """

    _kind = AsyncMessage
    _connection: AsyncConnection

    def _start(self, verbs: Verbs[T, Any], connection: AsyncConnection) -> None:
        self._verbs = verbs
        self._connection = connection
        self._opened = False
        self._opening: asyncio.Task[None] | None = None

    def _share(self, verbs: Verbs[T, Any], connection: Any) -> None:
        super()._share(verbs, connection)
        self._opened = True

    async def open(self) -> Self:
        """Open it now, rather than with the first verb: an error is raised here then."""
        if self._opened:
            return self
        self._verbs.refuse_if_closed()
        if self._opening is None:  # once, however many ask
            verb = run_async(self._verbs.open(), self._connection.do)
            self._opening = asyncio.get_running_loop().create_task(verb)
        opening = self._opening
        try:
            await asyncio.shield(opening)
            self._opened = True
        finally:
            if opening.done() and self._opening is opening:
                self._opening = None  # if it failed, the next one may have more luck
        return self

    async def send(
        self,
        body: T,
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        """Send a message and return its unique id. It can't be received before its delay ends."""
        options = delay_seconds, priority, attributes, reply_to, group, deduplication_id
        return (await self._run(self._verbs.send((body,), *options)))[0]

    async def send_many(
        self,
        bodies: Iterable[T],
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
    ) -> list[str]:
        """Send all of them, or none, in one step (SQS: in batches); their ids, in order."""
        options = delay_seconds, priority, attributes, reply_to, group
        return await self._run(self._verbs.send(list(bodies), *options))

    async def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[AsyncMessage[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""
        options = max_messages, visibility_timeout, wait_time_seconds
        return await self._run(self._verbs.receive(self, *options))

    async def acknowledge_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""
        return await self._run(self._verbs.acknowledge(self._deliveries(messages)))

    async def nack_many(
        self, messages: Iterable[AsyncMessage[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""
        chosen = self._deliveries(messages)
        return await self._run(self._verbs.nack(chosen, visibility_timeout))

    async def extend_visibility_many(
        self, messages: Iterable[AsyncMessage[T]], timeout: float
    ) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        return await self._run(self._verbs.extend(self._deliveries(messages), timeout))

    async def release_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Give these back with no delivery counted (SQS counts it all the same)."""
        return await self._run(self._verbs.release(self._deliveries(messages)))

    async def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""
        return await self._run(self._verbs.purge())

    async def approximate_count(self) -> int:
        """Ready + scheduled + in flight; exact but on SQS."""
        return (await self.stats()).total

    async def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""
        return await self._run(self._verbs.stats())

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""
        return await self._run(self._verbs.peek(self, max_messages, state))

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""
        return await self._run(self._verbs.delete(ids))

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""
        return await self._run(self._verbs.redrive(self, ids, where, to))

    async def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        self._verbs.closed = True
        await self._connection.wake(self._verbs)
        if self._owns_connection:
            await self._connection.close()

    async def _run(self, verb: Runnable[R]) -> R:
        if not self._opened:
            await self.open()
        return await run_async(verb, self._connection.do)

    # What messages ask of the mailbox that delivered them.

    async def _acknowledge(self, delivery: Any) -> bool:
        return (await self._run(self._verbs.acknowledge((delivery,))))[0]

    async def _nack(self, delivery: Any, visibility_timeout: float) -> bool:
        return (await self._run(self._verbs.nack((delivery,), visibility_timeout)))[0]

    async def _extend(self, delivery: Any, timeout: float) -> bool:
        return (await self._run(self._verbs.extend((delivery,), timeout)))[0]

    async def _release(self, delivery: Any) -> bool:
        return (await self._run(self._verbs.release((delivery,))))[0]

    async def _reject(self, delivery: Any, reason: str) -> bool:
        return (await self._run(self._verbs.reject((delivery,), reason)))[0]

    async def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        return await self._run(self._verbs.reply(to, in_reply_to, body))

    # What an `AsyncRequestClient` asks of the mailbox that it has for its answers.

    async def _keep_for_answers(self) -> None:
        await self._run(self._verbs.keep_for_answers())

    async def _end_with_client(self) -> None:
        await self._run(self._verbs.delete_queue())
