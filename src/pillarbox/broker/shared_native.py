"""The private protocol of a broker with a shared store: for operators, not for mailboxes.

`pillarbox doctor`, `queue ls`, `pause`, `resume` and `rm` work here. Mailboxes must use the URL of
the store, and get an error that says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from pillarbox.broker.access import Principal
from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Request, Response
from pillarbox.broker.native_protocol import NativeProtocol, response
from pillarbox.broker.rights import may
from pillarbox.broker.shared_queue import SharedQueue
from pillarbox.broker.shared_queues import SharedQueues
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.broker.errors import QueueNotFoundError
from pillarbox.mailbox.url import without_password

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker


class SharedNative(NativeProtocol):
    """Answers `POST /pillarbox/v1/{queue}`."""

    def __init__(self, broker: Broker, queues: SharedQueues) -> None:
        super().__init__(broker)
        self._queues = queues

    async def handle(self, request: Request) -> Response:
        if request.method == "GET":
            return Response(501, b"Messages are not shown here; use the dashboard of the broker.\n")
        asked = self._read(request)
        if isinstance(asked, Response):
            return asked
        name, principal, told = asked
        return response([await self._outcome(each, name, principal) for each in told.commands])

    async def _outcome(self, command: wire.Command, name: str, principal: Principal) -> wire.Result:
        verb = _VERBS.get(type(command))
        try:
            if verb is None:
                raise self._use_the_store(name, principal)
            self._check(command, name, principal)
            return await verb(self, command, name, principal)
        except (MailboxError, SqsError) as error:
            return self._failed(error)

    def _use_the_store(self, name: str, principal: Principal) -> SqsError:
        url = self._broker.config.store
        where = "the URL of the queue in that store"
        if url is not None and principal.is_unlimited:
            where = f"{without_password(url).rstrip('/')}/{name}"
        return SqsError(
            "InvalidAction",
            "this broker shares its store with others and serves messages to SQS clients only; "
            f"use {where} instead",
        )

    async def _hello(self, command: wire.Hello, name: str, principal: Principal) -> wire.Result:
        return wire.Welcome(self._broker.access.new_token(principal))

    async def _describe(
        self, command: wire.Describe, name: str, principal: Principal
    ) -> wire.Result:
        return await self._broker.health.describe_shared(self._queues, principal, name)

    async def _list_queues(
        self, command: wire.ListQueues, name: str, principal: Principal
    ) -> wire.Result:
        async def line(name: str) -> wire.QueueLine | None:
            if not may(principal, "GetQueueAttributes", name):
                return None
            queue = await self._queues.find(name)
            return await _line(queue) if queue is not None else None

        return wire.ListedQueues([each for _, each in await self._queues.of_all(line)])

    async def _pause(self, command: wire.Pause, name: str, principal: Principal) -> wire.Result:
        await self._find(name)
        await self._queues.pause(name, paused=command.paused)
        return wire.Done(1)

    async def _drop(self, command: wire.Drop, name: str, principal: Principal) -> wire.Result:
        await self._queues.drop(await self._find(name))
        return wire.Done(1)

    async def _find(self, name: str) -> SharedQueue:
        queue = await self._queues.find(name)
        if queue is None:
            raise QueueNotFoundError(f"the broker has no queue {name!r}")
        return queue


async def _line(queue: SharedQueue) -> wire.QueueLine:
    stats, known = await queue.stats(), queue.described
    age = stats.oldest_age_seconds
    counts = (
        *(stats.ready, stats.scheduled, stats.in_flight, stats.dead),
        None if age is None else int(age * SECOND_NS),
    )
    return wire.QueueLine(queue.name, counts, known.dead, known.max_deliveries, known.paused)


_Verb = Callable[[SharedNative, Any, str, Principal], Awaitable[wire.Result]]
_VERBS: Final[dict[type[wire.Command], _Verb]] = {
    wire.Hello: SharedNative._hello,
    wire.Describe: SharedNative._describe,
    wire.ListQueues: SharedNative._list_queues,
    wire.Pause: SharedNative._pause,
    wire.Drop: SharedNative._drop,
}
