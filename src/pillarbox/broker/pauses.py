"""Pauses in long operations, so that other clients are served meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_PAUSE_SECONDS: Final = 0.001
_PAUSES_MAX: Final = 3  # consecutive


class Pauses:
    """The pauses of one long operation."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._requests = broker.http_server.requests

    async def pause(self) -> None:
        """Yield to other requests.

        While requests arrive, or responses wait for the disk, leave the loop idle for a moment:
        the thread that syncs needs the interpreter too.
        """
        await asyncio.sleep(0)
        for _ in range(_PAUSES_MAX):
            if not self._is_asked():
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    def _is_asked(self) -> bool:
        before, self._requests = self._requests, self._broker.http_server.requests
        confirmations = self._broker.confirmations
        is_writing = confirmations is not None and confirmations.waiting > 0
        return is_writing or before != self._requests
