"""Combines concurrent commands into one request with one confirmation.

While a request is under way, new commands wait and go with the next one. So a single command is
sent immediately, and thousands of concurrent ones take a few round trips.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from pillarbox.mailbox.broker.errors import error_of
from pillarbox.mailbox.broker.wire import COMMANDS_MAX, Command, Failed, Send

_BYTES_MAX = 1 << 20  # of bodies combined; a single command may have more

Ask = Callable[[list[Command]], Awaitable[list[Any]]]


class Batcher:
    """The commands for one queue on one event loop. Calls `idle` when all are answered."""

    def __init__(self, ask: Ask, idle: Callable[[], object]) -> None:
        self._ask = ask
        self._idle = idle
        self._waiting: deque[tuple[Command, asyncio.Future[Any]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, command: Command) -> asyncio.Future[Any]:
        """Add a command and return a future for its result."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((command, outcome))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return outcome

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._send(self._next())
        finally:
            self._task = None
            self._idle()
            while self._waiting:  # only if cancelled: the event loop is closing
                self._waiting.popleft()[1].cancel()

    def _next(self) -> list[tuple[Command, asyncio.Future[Any]]]:
        batch: list[tuple[Command, asyncio.Future[Any]]] = []
        room = _BYTES_MAX
        while self._waiting and len(batch) < COMMANDS_MAX:
            command, _ = self._waiting[0]
            if isinstance(command, Send):
                room -= sum(map(len, command.bodies))
            if room < 0 and batch:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send(self, batch: list[tuple[Command, asyncio.Future[Any]]]) -> None:
        try:
            results = await self._ask([command for command, _ in batch])
        except BaseException as error:
            for _, outcome in batch:
                if not outcome.done():
                    _fail(outcome, error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, outcome), result in zip(batch, results, strict=False):
            if outcome.done():
                continue
            if isinstance(result, Failed):
                outcome.set_exception(error_of(result))
            else:
                outcome.set_result(result.value)


def _fail(outcome: asyncio.Future[Any], error: BaseException) -> None:
    if isinstance(error, Exception):
        outcome.set_exception(error)
    else:
        outcome.cancel()
