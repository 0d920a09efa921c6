"""`AsyncRedisMailbox`: a mailbox on Redis, for asyncio. Its verbs are those of `RedisMailbox`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from pillarbox.closing import AsyncClosing
from pillarbox.core import limits
from pillarbox.mailbox.message import AsyncMessage, Undecodable
from pillarbox.mailbox.protocol import SpecialForm, State, Stats
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.async_link import AsyncLink
from pillarbox.mailbox.redis.face import Face
from pillarbox.mailbox.redis.opening import Opening, RedisOptions
from pillarbox.mailbox.redis.plan import Plan

T = TypeVar("T")
R = TypeVar("R")


class AsyncRedisMailbox(Face[T, AsyncLink], AsyncClosing, Generic[T]):
    """`RedisMailbox` for asyncio: the same arguments, and verbs to await.

    It is opened by its first verb, by `async with`, or by `await mailbox.open()`, and belongs to
    the event loop that did so. Until then `dead_letters` is None.
    """

    @overload
    def __init__(
        self: AsyncRedisMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[RedisOptions],
    ) -> None: ...
    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[RedisOptions]) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[RedisOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[RedisOptions]) -> None:
        opening = Opening(options, asynchronous=True)
        self._set_up(name, body_type, opening, AsyncLink(opening.site, opening.retry_seconds))
        self._settings = opening.settings
        self._opened = False

    async def open(self) -> Self:
        """Declare the queue, and read what holds for it."""
        if not self._opened:
            await self._link.run(self._verbs.open(**self._settings))
            self._opened = True
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
        verbs = self._verbs
        verbs.refuse_if_closed()
        data = verbs.packed([body])
        noted = verbs.attributes(attributes, reply_to, len(data[0]))
        plan = verbs.send(data, delay_seconds, priority, noted, group, deduplication_id)
        return (await self._run(plan))[0]

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
        verbs = self._verbs
        verbs.refuse_if_closed()
        data = verbs.packed(list(bodies))
        noted = verbs.attributes(attributes, reply_to, max(map(len, data), default=0))
        return await self._run(verbs.send(data, delay_seconds, priority, noted, group))

    async def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[AsyncMessage[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""
        verbs = self._verbs
        verbs.refuse_if_closed()
        options = max_messages, visibility_timeout, wait_time_seconds
        await self.open()
        plan = verbs.receive(*options, AsyncMessage, self)
        return await self._link.run(plan, undo=verbs.given_back)

    async def acknowledge_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""
        return await self._settle("acknowledge", None, self._verbs.deliveries(messages))

    async def nack_many(
        self, messages: Iterable[AsyncMessage[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""
        delay = self._verbs.microseconds(visibility_timeout)
        return await self._settle("nack", delay, self._verbs.deliveries(messages))

    async def extend_visibility_many(
        self, messages: Iterable[AsyncMessage[T]], timeout: float
    ) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        microseconds = self._verbs.microseconds(timeout, "timeout")
        return await self._settle("extend", microseconds, self._verbs.deliveries(messages))

    async def release_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Give these back with no delivery counted."""
        return await self._settle("release", "0", self._verbs.deliveries(messages))

    async def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""
        self._verbs.refuse_if_closed()
        return await self._run(self._verbs.purge())

    async def approximate_count(self) -> int:
        """Ready + scheduled + in flight; exact."""
        return (await self.stats()).total

    async def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""
        return await self._run(self._verbs.stats())

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""
        return await self._run(self._verbs.peek(max_messages, state, AsyncMessage, self))

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""
        self._verbs.refuse_if_closed()
        return await self._run(self._verbs.delete(ids))

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""
        self._verbs.refuse_if_closed()
        return await self._run(self._verbs.redrive(ids, where, to, AsyncMessage, self))

    async def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        self._verbs.closed = True
        await self._link.unblock(self.name)
        if self._owns_link:
            await self._link.close()

    async def _run(self, plan: Plan[R]) -> R:
        if not self._opened:
            await self.open()
        return await self._link.run(plan)

    async def _settle(
        self, script: str, argument: Any, deliveries: list[wire.Delivery]
    ) -> list[bool]:
        return await self._run(self._verbs.settle(script, argument, deliveries))

    def _beside(self, name: str) -> Self:
        other = super()._beside(name)
        other._opened = True
        return other

    # What messages ask of the mailbox that delivered them.

    async def _acknowledge(self, delivery: wire.Delivery) -> bool:
        return (await self._settle("acknowledge", None, [delivery]))[0]

    async def _nack(self, delivery: wire.Delivery, visibility_timeout: float) -> bool:
        return (
            await self._settle("nack", self._verbs.microseconds(visibility_timeout), [delivery])
        )[0]

    async def _extend(self, delivery: wire.Delivery, timeout: float) -> bool:
        return (
            await self._settle("extend", self._verbs.microseconds(timeout, "timeout"), [delivery])
        )[0]

    async def _release(self, delivery: wire.Delivery) -> bool:
        return (await self._settle("release", "0", [delivery]))[0]

    async def _reject(self, delivery: wire.Delivery, reason: str) -> bool:
        return (await self._settle("reject", limits.text("reason", reason), [delivery]))[0]

    async def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        return await self._run(self._answers(to).answer(in_reply_to, body))
