"""Answers that wait for the disk, by the turn of the event loop in which they were made.

What was written in one turn is confirmed together: one wait, one wake-up, and every answer of
the turn leaves. The next turns go on meanwhile, and their records fill the next group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any

from pillarbox.broker.http import Gate
from pillarbox.broker.metrics import Metrics
from pillarbox.mailbox.locked import Written


class Confirmations:
    """Gates that open when what was written before them is confirmed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._loop = loop
        self._metrics = metrics
        self._gate: Gate | None = None  # of this turn
        self._last: Written
        self.waiting = 0  # gates that have not opened

    def gate(self, written: Written) -> Gate:
        """What the answers of this turn wait at; this was written last."""
        self._last = written
        if self._gate is None:
            self._gate = Gate()
            self._loop.call_soon(self._end_turn, self._gate)
        return self._gate

    def _end_turn(self, gate: Gate) -> None:
        self._gate = None
        self.waiting += 1
        self._step(gate, self._last.__await__(), time.perf_counter())

    def _step(self, gate: Gate, steps: Generator[Any, None, int], began: float) -> None:
        """Run what is awaited up to its next future: a task of its own would cost more."""
        try:
            future = next(steps)
        except StopIteration:
            self.waiting -= 1
            self._metrics.confirmed(time.perf_counter() - began, gate.open())
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            self.waiting -= 1
            gate.open(error)
        else:
            future.add_done_callback(lambda _: self._step(gate, steps, began))
