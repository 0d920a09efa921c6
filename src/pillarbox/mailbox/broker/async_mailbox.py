"""Mailboxes behind a broker, for asyncio: what is gathered goes in one request.

`LocalMailbox` checks and encodes as for threads, but on a desk that only notes each command;
the command is then awaited here. So no rule is written twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, Unpack, get_args, overload

from pillarbox.closing import AsyncClosing
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.answers import dropped, is_reply_queue
from pillarbox.mailbox.broker.async_channel import AsyncChannels, async_channels_to
from pillarbox.mailbox.broker.channel import Channels, channels_to
from pillarbox.mailbox.broker.desk import TaskDesk
from pillarbox.mailbox.broker.errors import QueueNotFoundError, error_of
from pillarbox.mailbox.broker.mailbox import (
    BrokerMailbox,
    BrokerOptions,
    Pages,
    answer_to,
    broker_of,
    declaration_of,
    deletes,
    redrives,
    remember,
    reply_queue,
)
from pillarbox.mailbox.broker.outbox import Outbox
from pillarbox.mailbox.broker.tries import ANSWER_SECONDS_MAX
from pillarbox.mailbox.broker.wire import (
    Command,
    Declare,
    Delivery,
    Failed,
    Peek,
    Receive,
    Reject,
    Tally,
    microseconds,
)
from pillarbox.mailbox.message import AsyncMessage, Details, Undecodable
from pillarbox.mailbox.protocol import SpecialForm, State, Stats

T = TypeVar("T")

_STATES = get_args(State)


class AsyncBrokerMailbox(AsyncClosing, Generic[T]):
    """`BrokerMailbox` for asyncio: the same arguments, and verbs to await.

    It is opened by its first verb, by `async with`, or by `await mailbox.open()`, and belongs to
    the event loop that did so; close it before that loop ends. Until then `dead_letters` is None.
    """

    @overload
    def __init__(
        self: AsyncBrokerMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[BrokerOptions],
    ) -> None: ...
    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[BrokerOptions]) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[BrokerOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[BrokerOptions]) -> None:
        declaration = declaration_of(name, options)
        self._attach(channels_to(broker_of(options)), name, body_type, declaration)
        self._counts = True

    def _attach(
        self, channels: Channels, name: str, body_type: Any, declaration: Declare | None = None
    ) -> None:
        self._notes: BrokerMailbox[T] = BrokerMailbox.__new__(BrokerMailbox)
        self._notes._attach(TaskDesk, channels, name, body_type)
        self._desk: TaskDesk = self._notes._desk
        self._counts = False  # among those that keep connections open
        self._to_declare = declaration  # what opens it, until that was done
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channels: AsyncChannels | None = None
        self._outbox = Outbox(self._request)
        self._parked: set[asyncio.Task[Any]] = set()
        self._replies: dict[str, AsyncBrokerMailbox[Any]] = {}

    def __set_type__(self, alias: Any) -> None:
        """`AsyncBrokerMailbox[Order]("orders")`: the type in brackets is the body's type."""
        self._notes.__set_type__(alias)

    __orig_class__ = property(fset=__set_type__)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._notes.name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._notes.closed

    @property
    def dead_letters(self) -> AsyncBrokerMailbox[T] | None:
        """The mailbox of this one's dead letters, if it has a policy."""
        if self._desk.dead is None:
            return None
        other = self._sibling(self._desk.dead)
        other._notes._use(self._notes._codec)
        return other

    async def open(self) -> Self:
        """Declare the queue, and learn where its dead letters go."""
        if self._to_declare is not None:
            self._notes._refuse_if_closed()
            await self._declare(self._to_declare)
            self._to_declare = None
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
        ids = await self._outcome(
            self._notes.send(
                body,
                delay_seconds=delay_seconds,
                priority=priority,
                attributes=attributes,
                reply_to=reply_to,
                group=group,
                deduplication_id=deduplication_id,
            )
        )
        return str(ids[0])

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
        noted = self._notes.send_many(
            bodies,
            delay_seconds=delay_seconds,
            priority=priority,
            attributes=attributes,
            reply_to=reply_to,
            group=group,
        )
        return await self._outcome(*noted)  # type: ignore[no-any-return]

    async def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[AsyncMessage[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""
        count, timeout, wait = self._notes._receive_options(
            max_messages, visibility_timeout, wait_time_seconds
        )
        await self.open()
        until = time.monotonic_ns() + wait
        while True:
            try:
                deliveries: Any = await self._receive(count, timeout, wait)
            except QueueNotFoundError as error:
                self._desk.may_declare_again(error)
                await self._declare(self._desk.declaration)
                continue
            messages: list[AsyncMessage[T]] = self._notes._open(deliveries, AsyncMessage, self)
            while self._desk.rejected:
                await self._outcome(self._desk.rejected.popleft())
            if messages or not deliveries:
                return messages
            wait = max(0, until - time.monotonic_ns()) if wait else 0

    async def _receive(self, count: int, timeout: int, wait: int) -> list[Delivery]:
        """One long poll, in a task of its own, so that `close` can end it."""
        command = Receive(count, microseconds(timeout), microseconds(wait))
        seconds = wait / limits.SECOND_NS + ANSWER_SECONDS_MAX
        poll = asyncio.get_running_loop().create_task(self._request([command], seconds))
        self._parked.add(poll)
        try:
            (result,) = await poll
        except asyncio.CancelledError:
            if self.closed and poll.cancelled():
                return []
            raise
        finally:
            self._parked.discard(poll)
        if isinstance(result, Failed):
            raise error_of(result)
        deliveries: list[Delivery] = result.value
        return deliveries

    async def acknowledge_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""
        return await self._settle(self._notes.acknowledge_many(messages))  # type: ignore[arg-type]

    async def nack_many(
        self, messages: Iterable[AsyncMessage[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""
        noted = self._notes.nack_many(messages, visibility_timeout=visibility_timeout)  # type: ignore[arg-type]
        return await self._settle(noted)

    async def extend_visibility_many(
        self, messages: Iterable[AsyncMessage[T]], timeout: float
    ) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        return await self._settle(self._notes.extend_visibility_many(messages, timeout))  # type: ignore[arg-type]

    async def release_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Give these back with no delivery counted."""
        return await self._settle(self._notes.release_many(messages))  # type: ignore[arg-type]

    async def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""
        noted: Any = self._notes.purge()
        return int(await self._outcome(*noted))

    async def approximate_count(self) -> int:
        """Ready + scheduled + in flight; exact."""
        return (await self.stats()).total

    async def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""
        ready, scheduled, in_flight, dead, age = await self._outcome(Tally())
        seconds = None if age is None else age / limits.SECOND_NS
        return Stats(ready, scheduled, in_flight, dead, seconds)

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""
        count = limits.whole("max_messages", max_messages, 1, limits.MESSAGES_MAX)
        limits.one_of("state", state, _STATES)
        return [self._seen(each) for each in await self._outcome(Peek(state, count))]

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""
        self._notes._refuse_if_closed()
        parts = deletes(list(self._notes._keys(ids)))
        return sum([await self._outcome(part) for part in parts])

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""
        chosen = self._notes._to_redrive(ids, to)
        if where is not None:
            pages = Pages()
            matching = []
            while page := await self._outcome(pages.look):
                for message in map(self._seen, pages.fresh(page)):
                    if (chosen is None or message.id in chosen) and where(message):
                        matching.append(message.id)
            chosen = matching
        moves = redrives(chosen, to)
        try:
            part = next(moves)
            while True:
                part = moves.send(await self._outcome(part))
        except StopIteration as done:
            return int(done.value)

    async def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        if self.closed:
            return
        self._notes.close()
        for poll in list(self._parked):
            poll.cancel()
        if self._counts and self._channels is not None:
            self._channels.leave()
            await asyncio.sleep(0)  # in which the connections end
        self._counts = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._desk.channels.address.origin})"

    # What messages ask of the mailbox that delivered them.

    async def _acknowledge(self, delivery: Any) -> bool:
        return bool((await self._outcome(self._notes._acknowledge(delivery)))[0])

    async def _nack(self, delivery: Any, visibility_timeout: float) -> bool:
        return bool((await self._outcome(self._notes._nack(delivery, visibility_timeout)))[0])

    async def _extend(self, delivery: Any, timeout: float) -> bool:
        return bool((await self._outcome(self._notes._extend(delivery, timeout)))[0])

    async def _release(self, delivery: Any) -> bool:
        return bool((await self._outcome(self._notes._release(delivery)))[0])

    async def _reject(self, delivery: Any, reason: str) -> bool:
        command = Reject([delivery.record.handle], limits.text("reason", reason))
        return bool((await self._outcome(command))[0])

    async def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        if to is None:
            raise InvalidParameterError(
                "reply_to", to, "named by the sender of the message that is replied to"
            )
        answers = await self._open_by_name(to)
        command = answer_to(in_reply_to, body)
        if not is_reply_queue(answers.name):
            return str((await answers._outcome(command))[0])
        try:
            return str((await answers._outbox.put(command))[0])
        except QueueNotFoundError:
            return dropped(answers.name, in_reply_to)

    def _message_id(self, delivery: Any) -> str:
        return self._notes._message_id(delivery)

    def _receipt_handle(self, delivery: Any) -> str:
        return self._notes._receipt_handle(delivery)

    def _details(self, delivery: Any) -> Details:
        return self._notes._details(delivery)

    # The rest is how commands are awaited.

    async def _outcome(self, command: Any) -> Any:
        """What comes of this command; it may go together with others."""
        if self._to_declare is not None:
            await self.open()
        try:
            return await self._outbox.put(command)
        except QueueNotFoundError as error:
            self._desk.may_declare_again(error)
        await self._declare(self._desk.declaration)
        return await self._outbox.put(command)

    async def _settle(self, noted: Any) -> list[bool]:
        answers: list[bool] = await self._outcome(*noted)
        return answers

    async def _declare(self, declaration: Declare) -> None:
        declared = await self._outbox.put(declaration)
        self._desk.note(declaration, declared)
        self._here().instance = declared.instance

    async def _request(
        self, commands: list[Command], seconds: float = ANSWER_SECONDS_MAX
    ) -> list[Any]:
        return await self._here().ask(self.name, commands, seconds)

    def _here(self) -> AsyncChannels:
        """The channels of the loop that the caller runs on, if it is the mailbox's."""
        loop = asyncio.get_running_loop()
        if self._channels is None or self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise InvalidParameterError(
                    "event loop",
                    loop,
                    f"the one that mailbox {self.name!r} is used on; "
                    "open the mailbox once in each thread that runs a loop",
                )
            self._loop = loop
            self._channels = async_channels_to(self._desk.channels.address)
            self._channels.instance = self._channels.instance or self._desk.channels.instance
            self._channels.users += self._counts
        return self._channels

    def _seen(self, delivery: Any) -> AsyncMessage[T | Undecodable]:
        message: AsyncMessage[T | Undecodable] = self._notes._seen(
            delivery, delivery.number, AsyncMessage, self
        )
        return message

    async def _open_by_name(self, name: str) -> AsyncBrokerMailbox[Any]:
        answers = self._replies.get(name)
        if answers is None:
            answers = self._sibling(reply_queue(name, self._desk))
            if not is_reply_queue(answers.name):  # a client makes its own
                await answers._declare(Declare())
            remember(self._replies, name, answers)
        return answers

    def _sibling(self, name: str) -> AsyncBrokerMailbox[Any]:
        other: AsyncBrokerMailbox[Any] = AsyncBrokerMailbox.__new__(AsyncBrokerMailbox)
        other._attach(self._desk.channels, name, Any)
        return other
