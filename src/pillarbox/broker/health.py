"""/livez: the process answers. /readyz: clients can work with it, if only to empty a full disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Request, Response
from pillarbox.mailbox.durable_store import DurableStore

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

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

    def readyz(self, request: Request) -> Response:
        failure = self._failure()
        return Response(503 if failure else 200, f"{self.problem() or 'ok'}\n".encode(), _PLAIN)

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
