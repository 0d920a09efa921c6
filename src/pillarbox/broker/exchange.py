"""A request whose answer is not written yet. Answers leave in the order of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pillarbox.broker.http import Response
from pillarbox.logger import logger


class Exchange:
    __slots__ = ("keep_alive", "only_head", "pending", "ready", "response")

    def __init__(self, keep_alive: bool, only_head: bool) -> None:
        self.keep_alive = keep_alive
        self.only_head = only_head
        self.response: Response | None = None
        self.ready = False
        self.pending: asyncio.Future[Response] | None = None

    def confirm(self, broken: Callable[[], Response]) -> None:
        """What the answer waited for is known: it may leave, or the one it has for a failure."""
        response = self.response
        error = response.after.error if response is not None and response.after else None
        if response is not None and error is not None:
            if response.otherwise is not None:
                self.response = response.otherwise(error)
            else:
                logger.error("a request could not be confirmed", error=str(error))
                self.response = broken()
        self.ready = True
