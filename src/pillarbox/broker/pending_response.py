"""A response that waits: to be computed, to be confirmed on disk, or for those before it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable

from msgspec import Struct

from pillarbox.broker.http import Response
from pillarbox.logger import logger


class PendingResponse(Struct, eq=False):
    """A response that has not been written yet."""

    keep_alive: bool
    only_head: bool
    response: Response | None = None
    is_ready: bool = False  # may be written once the responses before it are
    future: Future[Response] | None = None

    def confirm(self, broken: Callable[[], Response]) -> None:
        """Mark the response as ready, or replace it if its confirmation failed."""
        response = self.response
        assert response is not None, "it has been computed"
        error = response.confirmation.error if response.confirmation is not None else None
        if error is not None:
            if response.if_unconfirmed is not None:
                self.response = response.if_unconfirmed(error)
            else:
                logger.error("a request could not be confirmed", error=str(error))
                self.response = broken()
        self.is_ready = True
