"""Group commit for responses: those that wait for the disk share one sync.

Writes of one iteration of the event loop, and of the following ones as long as each adds more,
are confirmed by one sync. While a slow disk syncs in a thread, the loop goes on and the next
group fills. With a fast disk the loop syncs by itself: switching to a thread and back would take
longer. (Measured with 32 clients: 1.4 x the sends per second, 0.6 x the CPU of a send.)
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

_WAITING_MAX: Final = 64  # responses; a group of this size syncs at once
_QUICK_SECONDS: Final = 0.000_7  # a faster sync is not worth a thread


class Confirmations:
    """Creates the confirmations that responses wait for."""

    def __init__(
        self, store: DurableStore, loop: asyncio.AbstractEventLoop, metrics: Metrics
    ) -> None:
        self._store = store
        self._loop = loop
        self._metrics = metrics
        self._pending: Confirmation | None = None  # the one that responses can still join
        self.waiting = 0  # confirmations in progress

    def pending(self) -> Confirmation | None:
        """Return the confirmation for everything written so far; None if that is confirmed."""
        if self._pending is None:
            written = self._store.written
            if written.done() and written.exception() is None:
                return None
            self._pending = Confirmation()
            self._loop.call_soon(self._sync_or_wait, self._pending, 0)
        return self._pending

    def _sync_or_wait(self, confirmation: Confirmation, seen: int) -> None:
        """Sync, unless responses joined in the last iteration of the loop: more may follow."""
        waiting = confirmation.waiting
        if seen < waiting < _WAITING_MAX:
            self._loop.call_soon(self._sync_or_wait, confirmation, waiting)
            return
        self._pending = None
        self.waiting += 1
        written, began = self._store.written, time.perf_counter()
        if self._store.writer.sync_seconds < _QUICK_SECONDS and not self._store.commit.leader:
            with suppress(LogError, OSError):  # raised again by `_step`
                written.wait()
        self._step(confirmation, written.__await__(), began)

    def _step(
        self, confirmation: Confirmation, steps: Generator[Any, None, int], began: float
    ) -> None:
        """Advance the awaitable to its next future; a task would cost more."""
        try:
            future = next(steps)
        except StopIteration:
            self.waiting -= 1
            self._metrics.confirmed(time.perf_counter() - began, confirmation.finish())
        except Exception as error:  # noqa: BLE001 - it becomes the response
            self.waiting -= 1
            confirmation.finish(error)
        else:
            future.add_done_callback(lambda _: self._step(confirmation, steps, began))
