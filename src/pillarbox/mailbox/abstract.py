"""`AbstractMailbox` and `AbstractAsyncMailbox`: the base classes of every mailbox.

A backend consists of its verbs (`verbs.Verbs`), a connection for threads, one for asyncio
(`runner`), and two mailbox classes that create these from their options. The classes here
validate nothing and know no server: they pass each verb to the connection, which runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack, get_args

from pillarbox import notebook
from pillarbox.closing import AsyncClosing, Closing
from pillarbox.codec import Codec, codec_for
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError
from pillarbox.mailbox.message import AsyncMessage, Message, Undecodable
from pillarbox.mailbox.protocol import BatchOptions, ReceiveOptions, SendOptions, State, Stats
from pillarbox.mailbox.runner import AsyncConnection, Connection, Runnable, run_async, run_sync
from pillarbox.mailbox.verbs import Verbs
from pillarbox.mutex import now_or_soon

T = TypeVar("T")
R = TypeVar("R")

_WAIT_SECONDS = 20  # wait time of each receive in messages()


class _Run(Protocol):
    def __call__(self, verb: Runnable[R]) -> R: ...


class _MailboxParts(Generic[T]):
    """The parts of a mailbox that need no I/O, shared by the sync and async classes."""

    _kind: Any  # class of the messages it returns
    _verbs: Verbs[T, Any]
    _connection: Any
    _owns_connection = True

    def __set_type__(self, alias: Any) -> None:
        """Take the body type from the brackets, as in `RedisMailbox[Order]("orders")`."""
        (body_type,) = get_args(alias)
        if not isinstance(body_type, TypeVar):
            self._use(codec_for(body_type))

    def _use(self, codec: Codec[T]) -> None:
        self._verbs.use(codec)

    # `typing` sets this attribute on each object that is created through a generic alias.
    __orig_class__ = property(fset=__set_type__)

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._verbs.name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._verbs.closed

    @property
    def dead_letters(self) -> Self | None:
        """The dead-letter queue; None without one, or before the mailbox is open."""
        verbs = self._verbs.dead_letters()
        if verbs is None:
            return None
        other = object.__new__(type(self))
        other._share(verbs, self._connection)
        return other

    def _share(self, verbs: Verbs[T, Any], connection: Any) -> None:
        """Make this the mailbox of another queue, on a connection it does not own."""
        self._connect(verbs, connection)
        self._owns_connection = False

    def _connect(self, verbs: Verbs[T, Any], connection: Any) -> None:
        self._verbs = verbs
        self._connection = connection

    def __repr__(self) -> str:
        where = f", {self._verbs.where}" if self._verbs.where else ""
        return f"{type(self).__name__}({self.name!r}{where})"

    def _deliveries(self, messages: Iterable[Any]) -> list[Any]:
        """Return the deliveries of these messages; raise if one is not from this queue."""
        chosen = list(messages)
        try:
            deliveries = [message._delivery for message in chosen if message._mailbox is self]
            if len(deliveries) == len(chosen):
                return deliveries
        except AttributeError:  # one of them is not a message: find it below
            pass
        for message in chosen:
            verbs = getattr(getattr(message, "_mailbox", None), "_verbs", None)
            if verbs is None or verbs.identity != self._verbs.identity:
                raise InvalidParameterError(
                    "messages", message, f"messages received from mailbox {self.name!r}"
                )
        return [message._delivery for message in chosen]


class AbstractMailbox(_MailboxParts[T], Closing, Generic[T]):
    """A mailbox for threads."""

    _kind = Message
    _connection: Connection
    _run: _Run

    def _start(self, verbs: Verbs[T, Any], connection: Connection) -> None:
        """Connect and open the queue."""
        self._connect(verbs, connection)
        try:
            self._run(verbs.open())
        except BaseException:
            connection.close()
            raise

    def _connect(self, verbs: Verbs[T, Any], connection: Connection) -> None:
        super()._connect(verbs, connection)
        self._run = partial(run_sync, connection.do)

    def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Send a message and return its unique id. It can't be received before its delay ends."""
        return self._run(self._verbs.send((body,), **options))[0]

    def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Send all messages or none (SQS: in batches of 10) and return their ids in order."""
        return self._run(self._verbs.send(list(bodies), **options))

    def receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[T]]:
        """Lease up to `max_messages`. Waits for the first message, never for a full batch."""
        return self._run(self._verbs.receive(self, **options))

    def messages(self, **options: Unpack[ReceiveOptions]) -> Iterator[Message[T]]:
        """Receive messages one by one until the mailbox is closed.

        Receives up to `max_messages` at a time; when the loop ends early, the rest are returned
        uncounted. Acknowledge each message yourself. Each receive waits for `wait_time_seconds`
        (default: 20); with 0, the loop ends when no message is ready.

        Examples:
            >>> from pillarbox import open_mailbox
            >>> with open_mailbox("memory:letters", str) as letters:
            ...     _ = letters.send_many(["a", "b"])
            ...     for message in letters.messages(wait_time_seconds=0):
            ...         print(message.body, message.acknowledge())
            a True
            b True
        """
        wait = options.setdefault("wait_time_seconds", _WAIT_SECONDS)
        while not self.closed:
            try:
                remaining = list(received := self.receive(**options))
            except MailboxClosedError:
                return
            try:
                while remaining and not self.closed:
                    yield remaining.pop(0)
            finally:
                if remaining:
                    self.release_many(remaining)
            if not received and not wait:
                return

    def acknowledge_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Delete these messages in one step; False for each whose lease has ended."""
        return self._run(self._verbs.acknowledge(self._deliveries(messages)))

    def nack_many(
        self, messages: Iterable[Message[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Return these messages for redelivery, now or later, in one step."""
        return self._run(self._verbs.nack(self._deliveries(messages), visibility_timeout))

    def extend_visibility_many(self, messages: Iterable[Message[T]], timeout: float) -> list[bool]:
        """Set the end of these leases to `timeout` seconds from now, in one step."""
        return self._run(self._verbs.extend(self._deliveries(messages), timeout))

    def release_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Return these messages without counting the delivery (SQS counts it anyway)."""
        return self._run(self._verbs.release(self._deliveries(messages)))

    def purge(self) -> int:
        """Delete all messages (ready, scheduled, in flight) and return how many there were."""
        return self._run(self._verbs.purge())

    def approximate_count(self) -> int:
        """Return the number of ready, scheduled and in-flight messages; only SQS approximates."""
        return self.stats().total

    def stats(self) -> Stats:
        """Return the message counts by state and the age of the oldest message."""
        return self._run(self._verbs.stats())

    def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[Message[T | Undecodable]]:
        """Return messages without receiving them: no lease, no delivery counted."""
        return self._run(self._verbs.peek(self, max_messages, state))

    def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, in any state, and return how many were deleted."""
        return self._run(self._verbs.delete(ids))

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Move dead letters to their source queues, or to queue `to`; return how many moved."""
        return self._run(self._verbs.redrive(self, ids, where, to))

    def close(self) -> None:
        """Wake all waiting receives. The mailbox can no longer be used."""
        if not self._verbs.closed:
            self._verbs.closed = True
            now_or_soon(self._disconnect)

    def _disconnect(self) -> None:
        self._connection.wake(self._verbs)
        if self._owns_connection:
            self._connection.close()

    _repr_html_ = notebook.of_mailbox

    def _acknowledge(self, delivery: Any) -> bool:
        """Acknowledge one delivery, for `Message.acknowledge`."""
        return self._run(self._verbs.acknowledge((delivery,)))[0]


class AbstractAsyncMailbox(_MailboxParts[T], AsyncClosing, Generic[T]):
    """A mailbox for asyncio.

    It is opened by its first verb, by `async with`, or by `await mailbox.open()`, and belongs to
    the event loop that did so. Until then `dead_letters` is None.
    """

    _kind = AsyncMessage
    _connection: AsyncConnection
    _opened = False
    _opening: asyncio.Task[None] | None = None

    def _share(self, verbs: Verbs[T, Any], connection: Any) -> None:
        super()._share(verbs, connection)
        self._opened = True

    async def open(self) -> Self:
        """Open the mailbox now instead of on first use, so that errors are raised here."""
        if self._opened:
            return self
        self._verbs.refuse_if_closed()
        if self._opening is None:  # open once, even if several tasks call
            verb = run_async(self._connection.do, self._verbs.open())
            self._opening = asyncio.get_running_loop().create_task(verb)
        opening = self._opening
        try:
            await asyncio.shield(opening)
            self._opened = True
        finally:
            if opening.done() and self._opening is opening:
                self._opening = None  # let the next call retry a failed open
        return self

    async def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Send a message and return its unique id. It can't be received before its delay ends."""
        return (await self._run(self._verbs.send((body,), **options)))[0]

    async def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Send all messages or none (SQS: in batches of 10) and return their ids in order."""
        return await self._run(self._verbs.send(list(bodies), **options))

    async def receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[AsyncMessage[T]]:
        """Lease up to `max_messages`. Waits for the first message, never for a full batch."""
        return await self._run(self._verbs.receive(self, **options))

    async def messages(self, **options: Unpack[ReceiveOptions]) -> AsyncIterator[AsyncMessage[T]]:
        """Receive messages one by one until the mailbox is closed.

        The options are those of `AbstractMailbox.messages`.
        """
        wait = options.setdefault("wait_time_seconds", _WAIT_SECONDS)
        while not self.closed:
            try:
                remaining = list(received := await self.receive(**options))
            except MailboxClosedError:
                return
            try:
                while remaining and not self.closed:
                    yield remaining.pop(0)
            finally:
                if remaining:
                    await self.release_many(remaining)
            if not received and not wait:
                return

    async def acknowledge_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Delete these messages in one step; False for each whose lease has ended."""
        return await self._run(self._verbs.acknowledge(self._deliveries(messages)))

    async def nack_many(
        self, messages: Iterable[AsyncMessage[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Return these messages for redelivery, now or later, in one step."""
        return await self._run(self._verbs.nack(self._deliveries(messages), visibility_timeout))

    async def extend_visibility_many(
        self, messages: Iterable[AsyncMessage[T]], timeout: float
    ) -> list[bool]:
        """Set the end of these leases to `timeout` seconds from now, in one step."""
        return await self._run(self._verbs.extend(self._deliveries(messages), timeout))

    async def release_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Return these messages without counting the delivery (SQS counts it anyway)."""
        return await self._run(self._verbs.release(self._deliveries(messages)))

    async def purge(self) -> int:
        """Delete all messages (ready, scheduled, in flight) and return how many there were."""
        return await self._run(self._verbs.purge())

    async def approximate_count(self) -> int:
        """Return the number of ready, scheduled and in-flight messages; only SQS approximates."""
        return (await self.stats()).total

    async def stats(self) -> Stats:
        """Return the message counts by state and the age of the oldest message."""
        return await self._run(self._verbs.stats())

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """Return messages without receiving them: no lease, no delivery counted."""
        return await self._run(self._verbs.peek(self, max_messages, state))

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, in any state, and return how many were deleted."""
        return await self._run(self._verbs.delete(ids))

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Move dead letters to their source queues, or to queue `to`; return how many moved."""
        return await self._run(self._verbs.redrive(self, ids, where, to))

    async def close(self) -> None:
        """Wake all waiting receives. The mailbox can no longer be used."""
        self._verbs.closed = True
        await self._connection.wake(self._verbs)
        if self._owns_connection:
            await self._connection.close()

    async def _run(self, verb: Runnable[R]) -> R:
        if not self._opened:
            await self.open()
        return await run_async(self._connection.do, verb)
