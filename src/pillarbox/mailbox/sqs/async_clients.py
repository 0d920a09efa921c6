"""Clients of aiobotocore: one for each event loop, session, region and endpoint.

A client is open while some mailbox that uses it is; the last one to close closes it.
"""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.sqs.clients import REGION_OF_OTHERS, config, leave_out_the_machine_s_own

CONNECTIONS_MAX = 10_000  # aiohttp opens no more: parked receives must leave some for others
_WHOLE_BYTES_MAX = 1 << 16


class _Target(NamedTuple):
    session: AioSession | None
    region: str | None
    endpoint: str | None


class _Shared:
    """An open client and how many use it."""

    def __init__(self, opening: asyncio.Task[tuple[Any, Any]]) -> None:
        self.opening = opening  # to the client, and what closes it
        self.users = 0


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Target, _Shared]] = WeakKeyDictionary()


class Line:
    """A mailbox's way to SQS. It belongs to the event loop that first uses it."""

    def __init__(self, session: AioSession | None, region: str | None, endpoint: str | None):
        self._target = _Target(session, region, endpoint)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._closed = False

    async def call(self, operation: str, params: dict[str, Any]) -> Any:
        """Ask SQS; after `close` through a client that is open for this call only."""
        here = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = here
        elif self._loop is not here:
            raise InvalidParameterError(
                "event loop", here, "the one in which this mailbox was first used: open another"
            )
        if self._client is not None:
            return await getattr(self._client, operation)(**params)
        client = await _open(here, self._target)
        kept = self._keep(client)
        try:
            return await getattr(client, operation)(**params)
        finally:
            if not kept:
                await _close(here, self._target)

    def _keep(self, client: Any) -> bool:
        """Hold on to it, unless another call did so meanwhile or the mailbox was closed."""
        if self._closed or self._client is not None:
            return False
        self._client = client
        return True

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
        leave_out_the_machine_s_own(session, target.endpoint)
    signed = target.endpoint is None or await session.get_credentials() is not None
    region = target.region or session.get_config_variable("region")
    context = session.create_client(
        "sqs",
        region_name=region or (REGION_OF_OTHERS if target.endpoint else None),
        endpoint_url=target.endpoint,
        config=AioConfig(**config(signed=signed, connections_max=CONNECTIONS_MAX)),
    )
    client = await context.__aenter__()
    client.meta.events.register("before-send.sqs", _as_stream)
    return client, context


def _as_stream(request: Any, **about: Any) -> None:
    """aiohttp wants large bodies as streams: it writes those piece by piece."""
    if isinstance(request.body, bytes) and len(request.body) > _WHOLE_BYTES_MAX:
        request.body = BytesIO(request.body)
