"""What several tests of the bus need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from pillarbox.bus import MessageBus
from pillarbox.bus.events import BusEvent

PATIENCE_SECONDS = 20
_ROUNDS = 20


def events_of(bus: MessageBus) -> list[Any]:
    """Everything that a bus tells from now on."""
    told: list[Any] = []
    bus.dispatcher.subscribe(BusEvent, told.append)
    return told


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop go on until this holds."""
    rounds = count()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - threads of handlers can't set an event here
            # Sooner or later another thread must have the interpreter.
            await asyncio.sleep(0 if next(rounds) < _ROUNDS else 0.0002)
