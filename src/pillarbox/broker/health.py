"""/livez: the process answers. /readyz: it can also confirm what it is sent."""

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
        problem = self.problem()
        return Response(503 if problem else 200, f"{problem or 'ok'}\n".encode(), _PLAIN)

    def problem(self) -> str | None:
        """Why the broker can't confirm what it is sent; None if it can."""
        if self._broker.closed:
            return "stopping"
        store = self._broker.store
        if isinstance(store, DurableStore) and store.log.poisoned is not None:
            return "the log failed; the broker is read-only"
        if isinstance(store, DurableStore) and store.full:
            return "the disk is full; messages can be received and deleted"
        return None
