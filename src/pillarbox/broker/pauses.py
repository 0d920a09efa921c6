"""Pauses in long work, so that other clients are served meanwhile."""

from __future__ import annotations

import asyncio
from typing import Final

from pillarbox.broker.http_server import HttpServer

_PAUSE_SECONDS: Final = 0.001


class Pauses:
    """Those of one piece of work."""

    def __init__(self, http_server: HttpServer) -> None:
        self._http_server = http_server
        self._requests = http_server.requests

    async def pause(self) -> None:
        """Let other requests be answered; if some came since the last pause, wait for more."""
        await asyncio.sleep(0)
        if self._requests != self._http_server.requests:
            self._requests = self._http_server.requests
            await asyncio.sleep(_PAUSE_SECONDS)
