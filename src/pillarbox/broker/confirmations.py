"""Answers that wait for the disk, together.

What was written in one turn of the event loop, and in those that follow it while each brings
more, is confirmed together: one sync, one wake-up, and all of these answers leave. If the disk
is slow, the next turns go on meanwhile, and their records fill the next group. If it is quick,
the event loop syncs by itself: handing over to a thread that does, and back, would take longer.
(Measured with 32 clients: the sends of both together 1.4 x, the CPU of each 0.6 x.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final

from pillarbox.broker.http import Confirmation
from pillarbox.broker.metrics import Metrics
from pillarbox.log import LogError
from pillarbox.mailbox.durable_store import DurableStore

_WAITING_MAX: Final = 64  # answers; so many do not wait for others to join them
_QUICK_SECONDS: Final = 0.000_7  # a sync that takes less is not worth a thread


class Confirmations:
    """Makes the confirmations that answers wait for."""

    def __init__(
        self, store: DurableStore, loop: asyncio.AbstractEventLoop, metrics: Metrics
    ) -> None:
        self._store = store
        self._loop = loop
        self._metrics = metrics
        self._pending: Confirmation | None = None  # which more may join
        self.waiting = 0  # confirmations that are under way

    def pending(self) -> Confirmation | None:
        """That of everything written so far; None if it is confirmed already."""
        if self._pending is None:
            written = self._store.written
            if written.done() and written.exception() is None:
                return None
            self._pending = Confirmation()
            self._loop.call_soon(self._sync_or_wait, self._pending, 0)
        return self._pending

    def _sync_or_wait(self, confirmation: Confirmation, seen: int) -> None:
        """Sync, unless more answers have joined since the last turn: more may come."""
        waiting = confirmation.waiting
        if seen < waiting < _WAITING_MAX:
            self._loop.call_soon(self._sync_or_wait, confirmation, waiting)
            return
        self._pending = None
        self.waiting += 1
        written, began = self._store.written, time.perf_counter()
        if self._store.writer.sync_seconds < _QUICK_SECONDS and not self._store.commit.leader:
            with suppress(LogError, OSError):  # raised once more below
                written.wait()
        self._step(confirmation, written.__await__(), began)

    def _step(
        self, confirmation: Confirmation, steps: Generator[Any, None, int], began: float
    ) -> None:
        """Run what is awaited up to its next future: a task of its own would cost more."""
        try:
            future = next(steps)
        except StopIteration:
            self.waiting -= 1
            self._metrics.confirmed(time.perf_counter() - began, confirmation.finish())
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            self.waiting -= 1
            confirmation.finish(error)
        else:
            future.add_done_callback(lambda _: self._step(confirmation, steps, began))
