"""Connections for asyncio, with one aiobotocore client per loop, session, region and endpoint.

Mailboxes share a client; the last one to close closes it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from io import BytesIO
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.runner import AsyncConnection, Interrupted
from pillarbox.mailbox.sqs.call import Call, Step
from pillarbox.mailbox.sqs.connection import DEFAULT_REGION, config, skip_instance_credentials
from pillarbox.mailbox.sqs.errors import from_botocore

CONNECTIONS_MAX = 10_000  # limit of aiohttp: long polls must not use up all connections
_WHOLE_BYTES_MAX = 1 << 16


class _Target(NamedTuple):
    session: AioSession | None
    region: str | None
    endpoint: str | None


class _Shared:
    """An open client and its reference count."""

    def __init__(self, opening: asyncio.Task[tuple[Any, Any]]) -> None:
        self.opening = opening  # results in the client and its exit stack
        self.users = 0


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Target, _Shared]] = WeakKeyDictionary()


class AsyncSQSConnection(AsyncConnection):
    """A connection to SQS. It belongs to the event loop that first uses it."""

    def __init__(self, session: AioSession | None, region: str | None, endpoint: str | None):
        self._target = _Target(session, region, endpoint)
        self._client: Any = None
        self._closed = False
        self._polls: dict[asyncio.Task[Any], Any] = {}  # long polls, and their verbs

    async def do(self, request: Step) -> Any:
        if self._moved():
            self._client = None
        return await (self._do(request) if request.owner is None else self._wait(request))

    async def _do(self, step: Step) -> Any:
        if not isinstance(step, Call):
            return await asyncio.sleep(step.seconds)
        try:
            return await self._call(step.operation, step.params)
        except Exception as error:  # `from_botocore` re-raises unknown ones
            raise from_botocore(error, step.operation, step.queue) from error

    async def _wait(self, step: Step) -> Any:
        """Run a step; end it early if the owner is closed."""
        if step.owner.closed:
            raise Interrupted
        poll = asyncio.get_running_loop().create_task(self._do(step))
        self._polls[poll] = step.owner
        try:
            await asyncio.wait([poll])
        except asyncio.CancelledError:
            poll.cancel()
            await asyncio.wait([poll])
            if isinstance(step, Call) and not poll.cancelled() and poll.exception() is None:
                await self._return_messages(step.params["QueueUrl"], poll.result())
            raise
        finally:
            del self._polls[poll]
        if poll.cancelled():
            raise Interrupted
        return poll.result()

    async def _return_messages(self, queue_url: str, answer: Any) -> None:
        """Make messages visible again that arrived while the receive was cancelled."""
        entries = [
            {"Id": str(position), "ReceiptHandle": each["ReceiptHandle"], "VisibilityTimeout": 0}
            for position, each in enumerate(answer.get("Messages", []))
        ]
        if entries:
            asked = {"QueueUrl": queue_url, "Entries": entries}
            with suppress(MailboxError):
                await self._do(Call("change_message_visibility_batch", asked))

    async def wake(self, verbs: Any) -> None:
        for poll, owner in self._polls.items():
            if owner is verbs:
                poll.cancel()

    async def _call(self, operation: str, params: dict[str, Any]) -> Any:
        """Call SQS; after `close`, with a client that is opened for this call only."""
        if self._client is not None:
            return await getattr(self._client, operation)(**params)
        here = asyncio.get_running_loop()
        client = await _open(here, self._target)
        kept = not self._closed and self._client is None  # no other call has set one meanwhile
        if kept:
            self._client = client
        try:
            return await getattr(client, operation)(**params)
        finally:
            if not kept:
                await _close(here, self._target)

    async def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await _close(asyncio.get_running_loop(), self._target)


async def _open(loop: asyncio.AbstractEventLoop, target: _Target) -> Any:
    open_here = _shared.setdefault(loop, {})
    shared = open_here.get(target)
    if shared is None:
        shared = open_here[target] = _Shared(loop.create_task(_create(target)))
    shared.users += 1
    try:
        client, _ = await asyncio.shield(shared.opening)
    except BaseException:
        await _close(loop, target)
        raise
    return client


async def _close(loop: asyncio.AbstractEventLoop, target: _Target) -> None:
    shared = _shared[loop][target]
    shared.users -= 1
    if shared.users:
        return
    del _shared[loop][target]
    opened = await asyncio.gather(shared.opening, return_exceptions=True)
    if not isinstance(opened[0], BaseException):
        await opened[0][1].__aexit__(None, None, None)


async def _create(target: _Target) -> tuple[Any, Any]:
    session = target.session
    if session is None:
        session = get_session()
        skip_instance_credentials(session, target.endpoint)
    signed = target.endpoint is None or await session.get_credentials() is not None
    region = target.region or session.get_config_variable("region")
    context = session.create_client(
        "sqs",
        region_name=region or (DEFAULT_REGION if target.endpoint else None),
        endpoint_url=target.endpoint,
        config=AioConfig(**config(signed=signed, connections_max=CONNECTIONS_MAX)),
    )
    client = await context.__aenter__()
    client.meta.events.register("before-send.sqs", _as_stream)
    return client, context


def _as_stream(request: Any, **about: Any) -> None:
    """Turn a large body into a stream, which aiohttp writes in chunks."""
    if isinstance(request.body, bytes) and len(request.body) > _WHOLE_BYTES_MAX:
        request.body = BytesIO(request.body)
