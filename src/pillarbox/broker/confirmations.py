"""Answers that wait for the disk, by the turn of the event loop in which they were made.

What was written in one turn is confirmed together: one wait, one wake-up, and every answer of
the turn leaves. The next turns go on meanwhile, and their records fill the next group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any

from pillarbox.broker.http import Confirmation
from pillarbox.broker.metrics import Metrics
from pillarbox.mailbox.durable_store import DurableStore


class Confirmations:
    """Makes the confirmations that answers wait for."""

    def __init__(
        self, store: DurableStore, loop: asyncio.AbstractEventLoop, metrics: Metrics
    ) -> None:
        self._store = store
        self._loop = loop
        self._metrics = metrics
        self._pending: Confirmation | None = None  # of this turn
        self.waiting = 0  # turns that are not confirmed yet

    def pending(self) -> Confirmation | None:
        """That of everything written so far; None if it is confirmed already."""
        if self._pending is None:
            written = self._store.written
            if written.done() and written.exception() is None:
                return None
            self._pending = Confirmation()
            self._loop.call_soon(self._end_turn, self._pending)
        return self._pending

    def _end_turn(self, confirmation: Confirmation) -> None:
        self._pending = None
        self.waiting += 1
        self._step(confirmation, self._store.written.__await__(), time.perf_counter())

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
