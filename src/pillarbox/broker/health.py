"""/livez: the process answers. /readyz: clients can work with it, if only to empty a full disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Answer, Request, Response
from pillarbox.broker.shared_queues import SharedQueues
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.durable_store import DurableStore

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_STORE_SECONDS_MAX: Final = 2.0  # a shared store that takes longer to answer counts as lost
_PLAIN = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    **NOT_FOR_OTHER_SITES,
}


class Health:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def livez(self, request: Request) -> Response:
        return Response(200, b"ok\n", _PLAIN)

    def readyz(self, request: Request) -> Answer:
        failure, shared = self._failure(), self._broker.shared
        if failure is None and shared is not None:
            return self._with_store(shared)
        return _answer(failure, self.problem())

    async def _with_store(self, shared: SharedQueues) -> Response:
        try:
            await asyncio.wait_for(shared.check(), _STORE_SECONDS_MAX)
        except (MailboxError, TimeoutError) as error:
            failure = f"the store does not answer: {str(error) or 'no answer in time'}"
            return _answer(failure, failure)
        return _answer(None, None)

    def problem(self) -> str | None:
        """What is wrong with the broker; None if nothing is."""
        store = self._broker.store
        full = isinstance(store, DurableStore) and store.full
        said = "the disk is full; messages can be received and deleted, but not sent"
        return self._failure() or (said if full else None)

    def _failure(self) -> str | None:
        """Why clients should go elsewhere. A full disk is no reason: it has to be emptied."""
        if self._broker.closed:
            return "stopping"
        store = self._broker.store
        if isinstance(store, DurableStore) and store.log.poisoned is not None:
            return "the log failed; the broker is read-only"
        return None


def _answer(failure: str | None, problem: str | None) -> Response:
    return Response(503 if failure else 200, f"{problem or 'ok'}\n".encode(), _PLAIN)
