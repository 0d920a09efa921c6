"""Periodic tasks: retention, and reloading a changed certificate.

A queue is visited only when one of its messages may be too old. A task that fails is logged and
tried again in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

from pillarbox.broker.retention import next_look, sweep
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import NEVER
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.broker.local_queue import LocalQueue
    from pillarbox.broker.server import Broker

_ROUND_NS: Final = 5 * SECOND_NS
_STOP_SECONDS: Final = 2.0  # grace period for the sweep of a shared store


class Housekeeping:
    """The periodic tasks of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks: list[tuple[int, int, LocalQueue]] = []  # a heap: when, which queue
        self._numbers = count()
        self._cancel: Callable[[], object] = lambda: None
        self._sweeping: asyncio.Task[None] | None = None

    def watch(self, queue: LocalQueue, at: int = 0) -> None:
        """Visit a queue at `at`, because it is new or its retention period changed."""
        queue.look_at = at if queue.retention_ns < NEVER else NEVER
        if queue.look_at < NEVER:
            heappush(self._looks, (at, next(self._numbers), queue))

    def start(self) -> None:
        self._round()

    async def stop(self) -> None:
        self._cancel()
        if self._sweeping is not None:
            if self._broker.shared is not None:  # let it finish the current queue
                await asyncio.wait((self._sweeping,), timeout=_STOP_SECONDS)
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    def _round(self) -> None:
        broker, clock = self._broker, self._broker.store.clock
        try:
            broker.local.settle_scopes(broker.now_seconds())
            if self._sweeping is None or self._sweeping.done():
                self._sweeping = broker.loop.create_task(self._sweep())
            if broker.tls is not None:
                broker.tls.reload_if_changed()
        except Exception:  # noqa: BLE001 - the next round must come in any case
            logger.exception("a round of housekeeping failed; the next one tries again")
        finally:
            self._cancel = clock.call_at(clock.now() + _ROUND_NS, self._round, broker.loop)

    async def _sweep(self) -> None:
        """Delete expired messages of the queues that are due."""
        if self._broker.shared is not None:
            try:
                await self._broker.shared.sweep()
            except MailboxError as error:
                logger.warning("messages that are too old were not deleted", error=str(error))
        await self._broker.native.reply_queues.sweep()
        await self._broker.saved()
        now = self._broker.store.clock.now()
        while self._looks and self._looks[0][0] <= now:
            at, _, queue = heappop(self._looks)
            if (
                at != queue.look_at
                or self._broker.store.sessions.get(queue.name) is not queue.session
            ):
                continue  # changed or deleted since
            try:
                await self._broker.in_slices(sweep(queue))
                self.watch(queue, next_look(queue))
            except Exception:  # noqa: BLE001 - the other queues must be visited in any case
                logger.exception("messages that are too old were not deleted", queue=queue.name)
                self.watch(queue, now + _ROUND_NS)
