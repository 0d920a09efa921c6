"""The asyncio face of a local mailbox. Its verbs never block, so only waiting is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from pillarbox.closing import AsyncClosing
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.queue import Lease
from pillarbox.mailbox.iteration import AsyncIteration
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.message import AsyncMessage, Details, Message, Undecodable
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.waiters import TaskWaiter

T = TypeVar("T")
R = TypeVar("R")


class AsyncLocalMailbox(AsyncIteration[T], AsyncClosing, Generic[T]):
    """`LocalMailbox` for asyncio. It belongs to the event loop that first uses it."""

    def __init__(self, mailbox: LocalMailbox[T]) -> None:
        self._sync = mailbox
        self._desk = mailbox._desk
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def name(self) -> str:
        """The queue\'s name."""
        return self._sync.name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._sync.closed

    @property
    def dead_letters(self) -> AsyncLocalMailbox[T] | None:
        """The mailbox of this one's dead letters, if it has a policy."""
        dead = self._sync.dead_letters
        return None if dead is None else AsyncLocalMailbox(dead)

    async def open(self) -> Self:
        """Nothing has to be waited for."""
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
        """Put a message in; its unique id. It can't be received before its delay is over."""
        return await self._confirmed(
            lambda box: box.send(
                body,
                delay_seconds=delay_seconds,
                priority=priority,
                attributes=attributes,
                reply_to=reply_to,
                group=group,
                deduplication_id=deduplication_id,
            )
        )

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
        """Put all of them in, or none: one step, not a loop. Their ids, in order."""
        return await self._confirmed(
            lambda box: box.send_many(
                bodies,
                delay_seconds=delay_seconds,
                priority=priority,
                attributes=attributes,
                reply_to=reply_to,
                group=group,
            )
        )

    async def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[AsyncMessage[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""
        mailbox = await self._opened()
        count, timeout, wait = mailbox._receive_options(
            max_messages, visibility_timeout, wait_time_seconds
        )
        until = self._desk.store.clock.now() + wait
        while True:
            leases = self._desk.receive(self._sync, count, timeout, 0)
            if not leases and wait:
                leases = await self._wait(count, timeout, until)
            messages: list[AsyncMessage[T]] = mailbox._open(leases, AsyncMessage, self)
            if messages or not leases:
                return messages
            wait = max(0, until - self._desk.store.clock.now())

    async def _wait(self, count: int, timeout: int, until: int) -> list[Lease]:
        desk = self._desk
        waiter = TaskWaiter(self._sync, count, timeout)
        desk.enter(waiter)
        loop = asyncio.get_running_loop()
        cancel_alarm = desk.store.clock.call_at(until, waiter.finish, loop)
        try:
            await waiter.done
            return desk.leave(waiter)
        except BaseException:  # cancelled: nobody will see what it was given
            desk.give_up(waiter)
            raise
        finally:
            cancel_alarm()

    async def acknowledge_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""
        return await self._confirmed(lambda box: self._desk.acknowledge(box._leases(messages)))

    async def nack_many(
        self, messages: Iterable[AsyncMessage[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""
        return await self._confirmed(
            lambda box: self._desk.nack(box._leases(messages), box._timeout(visibility_timeout))
        )

    async def extend_visibility_many(
        self, messages: Iterable[AsyncMessage[T]], timeout: float
    ) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        return await self._confirmed(
            lambda box: self._desk.extend(box._leases(messages), box._timeout(timeout, "timeout"))
        )

    async def release_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Give these back with no delivery counted."""
        return await self._confirmed(lambda box: self._desk.release(box._leases(messages)))

    async def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""
        return await self._confirmed(lambda box: box.purge())

    async def approximate_count(self) -> int:
        """Ready + scheduled + in flight; exact."""
        return (await self._opened()).approximate_count()

    async def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""
        return (await self._opened()).stats()

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""
        seen = (await self._opened()).peek(max_messages, state=state)
        return [AsyncMessage(m.body, m.delivery_count, m._delivery, self) for m in seen]

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""
        return await self._confirmed(lambda box: box.delete(ids))

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""
        if where is None:
            return await self._confirmed(lambda box: box.redrive(ids, to=to))
        wanted = where

        def chosen(m: Message[T | Undecodable]) -> bool:
            return wanted(AsyncMessage(m.body, m.delivery_count, m._delivery, self))

        return await self._confirmed(lambda box: box.redrive(ids, where=chosen, to=to))

    async def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        self._sync.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sync!r})"

    async def _confirmed(self, verb: Callable[[LocalMailbox[T]], R]) -> R:
        """What the verb answers, once it can't be lost any more; the loop goes on meanwhile."""
        mailbox = await self._opened()
        if not mailbox._store.waits:
            return verb(mailbox)
        return await mailbox._store.confirmed(lambda: verb(self._here()))

    async def _opened(self) -> LocalMailbox[T]:
        """The mailbox behind this one, which may have to be opened first."""
        return self._here()

    def _here(self) -> LocalMailbox[T]:
        """The mailbox behind this one, if the caller is on its event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise InvalidParameterError(
                    "event loop",
                    loop,
                    f"the one that mailbox {self.name!r} is used on; "
                    "open the mailbox once in each thread that runs a loop",
                )
            self._loop = loop
        return self._sync

    # What messages ask of the mailbox that delivered them.

    async def _acknowledge(self, lease: Lease) -> bool:
        return await self._confirmed(lambda box: box._acknowledge(lease))

    async def _nack(self, lease: Lease, visibility_timeout: float) -> bool:
        return await self._confirmed(lambda box: box._nack(lease, visibility_timeout))

    async def _extend(self, lease: Lease, timeout: float) -> bool:
        return await self._confirmed(lambda box: box._extend(lease, timeout))

    async def _release(self, lease: Lease) -> bool:
        return await self._confirmed(lambda box: box._release(lease))

    async def _reject(self, lease: Lease, reason: str) -> bool:
        return await self._confirmed(lambda box: box._reject(lease, reason))

    async def _keep_for_answers(self) -> None:
        await self._confirmed(lambda box: box._keep_for_answers())

    async def _end_with_client(self) -> None:
        await self._confirmed(lambda box: box._end_with_client())

    async def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        return await self._confirmed(lambda box: box._reply(to, in_reply_to, body))

    def _message_id(self, lease: Lease) -> str:
        return self._sync._message_id(lease)

    def _receipt_handle(self, lease: Lease) -> str:
        return self._sync._receipt_handle(lease)

    def _details(self, lease: Lease) -> Details:
        return self._sync._details(lease)
