"""A mailbox on SQS, for asyncio: the verbs, run with aiobotocore."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from pillarbox.closing import AsyncClosing
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.message import AsyncMessage, Undecodable
from pillarbox.mailbox.protocol import SpecialForm, State, Stats
from pillarbox.mailbox.sqs.async_clients import Line
from pillarbox.mailbox.sqs.errors import from_botocore
from pillarbox.mailbox.sqs.face import Face
from pillarbox.mailbox.sqs.receiving import Delivery
from pillarbox.mailbox.sqs.steps import Call, Interrupted, Step, Verb
from pillarbox.mailbox.sqs.verbs import SQSOptions, Verbs, verbs_for

T = TypeVar("T")
R = TypeVar("R")


class AsyncSQSMailbox(Face[T], AsyncClosing, Generic[T]):
    """`SQSMailbox` for asyncio: the same arguments, and verbs to await.

    `session` is an `aiobotocore.session.AioSession` here. The queue is looked up when the mailbox
    is first used; `await mailbox.open()`, or `async with`, does it at once.
    """

    @overload
    def __init__(
        self: AsyncSQSMailbox[Any], name: str, body_type: SpecialForm, **options: Unpack[SQSOptions]
    ) -> None: ...
    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[SQSOptions]) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[SQSOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[SQSOptions]) -> None:
        verbs = verbs_for(name, body_type, options, AsyncMessage)
        place = verbs.queue.place
        line = Line(
            options.get("session"),
            options.get("region") or place.region,
            options.get("endpoint") or place.endpoint,
        )
        self._set_up(verbs, line)

    def _set_up(self, verbs: Verbs[T], line: Line) -> None:
        self._verbs = verbs
        self._line = line
        self._opening: asyncio.Task[None] | None = None
        self._polls: set[asyncio.Task[Any]] = set()

    @property
    def dead_letters(self) -> AsyncSQSMailbox[T] | None:
        """The mailbox of this one's dead letters; a policy not given here is known after `open`.

        It is open as long as this one is.
        """
        if self._verbs.queue.dead is None:
            return None
        other: AsyncSQSMailbox[T] = AsyncSQSMailbox.__new__(AsyncSQSMailbox)
        other._set_up(self._verbs.beside(self._verbs.queue.dead), self._line)
        return other

    async def open(self) -> Self:
        """Look the queue up now; `InvalidParameterError` if it is missing."""
        if not self._verbs.queue.opened:
            await self._found()
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
        return await self._run(
            self._verbs.send(
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
        """Put all of them in, by batches of SQS; their ids, in order."""
        return await self._run(
            self._verbs.send_many(
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
        return await self._run(
            self._verbs.receive(self, max_messages, visibility_timeout, wait_time_seconds)
        )

    async def acknowledge_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Delete these; False for each whose delivery is over."""
        return await self._run(self._verbs.acknowledge(self._verbs.deliveries(messages)))

    async def nack_many(
        self, messages: Iterable[AsyncMessage[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later."""
        chosen = self._verbs.deliveries(messages)
        return await self._run(self._verbs.nack(chosen, visibility_timeout))

    async def extend_visibility_many(
        self, messages: Iterable[AsyncMessage[T]], timeout: float
    ) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        return await self._run(self._verbs.extend(self._verbs.deliveries(messages), timeout))

    async def release_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Give these back; SQS counts the delivery all the same."""
        return await self.nack_many(messages)

    async def purge(self) -> int:
        """Delete everything, at most once a minute; how many there were, roughly."""
        return await self._run(self._verbs.purge())

    async def approximate_count(self) -> int:
        """Ready + scheduled + in flight, roughly."""
        return (await self.stats()).total

    async def stats(self) -> Stats:
        """The count by state, roughly; SQS does not tell the age of the oldest."""
        return await self._run(self._verbs.stats())

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """SQS can't: `UnsupportedOperationError`."""
        self._verbs.refuse_to_peek()

    async def delete(self, ids: Iterable[str]) -> int:
        """SQS can't delete by id: `UnsupportedOperationError`."""
        self._verbs.refuse_to_delete()

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another queue."""
        return await self._run(self._verbs.redrive(self, ids, where, to))

    async def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        self._verbs.closed = True
        for poll in self._polls:
            poll.cancel()
        await self._line.close()

    # What messages ask of the mailbox that delivered them.

    async def _acknowledge(self, delivery: Delivery) -> bool:
        return (await self._run(self._verbs.acknowledge([delivery])))[0]

    async def _nack(self, delivery: Delivery, visibility_timeout: float) -> bool:
        return (await self._run(self._verbs.nack([delivery], visibility_timeout)))[0]

    async def _extend(self, delivery: Delivery, timeout: float) -> bool:
        return (await self._run(self._verbs.extend([delivery], timeout)))[0]

    async def _release(self, delivery: Delivery) -> bool:
        return await self._nack(delivery, 0)

    async def _reject(self, delivery: Delivery, reason: str) -> bool:
        return (await self._run(self._verbs.reject(delivery, reason)))[0]

    async def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        return await self._run(self._verbs.reply(to, in_reply_to, body))

    # How the steps of a verb are run.

    async def _run(self, verb: Verb[R]) -> R:
        if not self._verbs.queue.opened and not self._verbs.closed:
            await self._found()
        return await self._steps(verb)

    async def _found(self) -> None:
        """Look the queue up, once, however many ask."""
        if self._opening is None:
            opening = self._steps(self._verbs.queue.open())
            self._opening = asyncio.get_running_loop().create_task(opening)
        try:
            await asyncio.shield(self._opening)
        except MailboxError:
            self._opening = None  # the next one may have more luck
            raise

    async def _steps(self, verb: Verb[R]) -> R:
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = verb.send(answer) if error is None else verb.throw(error)
            except StopIteration as end:
                result: R = end.value
                return result
            answer = error = None
            try:
                answer = await self._do(step)
            except (MailboxError, Interrupted, asyncio.CancelledError) as raised:
                error = raised

    async def _do(self, step: Step) -> Any:
        if not isinstance(step, Call):
            return await asyncio.sleep(step.seconds)
        if not step.parked:
            return await self._call(step)
        if self._verbs.closed:
            raise Interrupted
        poll = asyncio.get_running_loop().create_task(self._call(step))
        self._polls.add(poll)
        try:
            await asyncio.wait([poll])
        except asyncio.CancelledError:
            poll.cancel()
            await asyncio.wait([poll])
            if not poll.cancelled() and poll.exception() is None:
                await self._hand_back(poll.result())
            raise
        finally:
            self._polls.discard(poll)
        if poll.cancelled():
            raise Interrupted
        return poll.result()

    async def _hand_back(self, answer: Any) -> None:
        """The answer came as the receive was cancelled: others need not wait for the leases."""
        entries = [
            {"Id": str(place), "ReceiptHandle": each["ReceiptHandle"], "VisibilityTimeout": 0}
            for place, each in enumerate(answer.get("Messages", []))
        ]
        if entries:
            asked = {"QueueUrl": self._verbs.queue.url, "Entries": entries}
            with suppress(MailboxError):
                await self._call(Call("change_message_visibility_batch", asked))

    async def _call(self, step: Call) -> Any:
        try:
            return await self._line.call(step.operation, step.params)
        except MailboxError:
            raise
        except Exception as error:
            raise from_botocore(error, step.operation, self.name) from error
