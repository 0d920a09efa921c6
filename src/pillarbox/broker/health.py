"""Health checks: /livez and /readyz for probes, and the report for `pillarbox doctor`.

Live: the process responds. Ready: clients can use it, if only to empty a full disk.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import TYPE_CHECKING, Final

from msgspec import structs

from pillarbox import __version__
from pillarbox.broker.access import Principal
from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Answer, Request, Response
from pillarbox.broker.shared_queues import SharedQueues
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.broker.wire import Described
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.url import without_password

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_STORE_SECONDS_MAX: Final = 2.0  # a shared store that takes longer counts as unavailable
_ACTIONS: Final = (
    "SendMessage",
    "ReceiveMessage",
    "DeleteMessage",
    "GetQueueAttributes",
    "CreateQueue",
    "PurgeQueue",
    "StartMessageMoveTask",
)
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
        failure = await _store_failure(shared)
        return _answer(failure, failure)

    def describe(self, principal: Principal, queue: str) -> Described:
        """Describe the broker; free disk space is shown only to keys with every right."""
        broker, store, free = self._broker, self._broker.store, None
        durable = isinstance(store, DurableStore)
        if isinstance(store, DurableStore) and principal.is_unlimited:
            free = shutil.disk_usage(store.path).free
        return Described(
            __version__,
            time.time_ns(),
            "shared" if broker.shared else broker.config.durability if durable else "none",
            not broker.access.open_to_all,
            [action for action in _ACTIONS if principal.may(action, queue)],
            self.problem(),
            free,
        )

    async def describe_shared(
        self, shared: SharedQueues, principal: Principal, queue: str
    ) -> Described:
        """As `describe`; the store and its brokers are shown only to keys with every right."""
        found = self.describe(principal, queue)
        found = structs.replace(found, problem=found.problem or await _store_failure(shared))
        if not principal.is_unlimited:
            return found
        url = self._broker.config.store
        brokers = {each.url: each.version for each in shared.heartbeat.brokers()}
        return structs.replace(found, store=url and without_password(url), brokers=brokers)

    def problem(self) -> str | None:
        """Return what is wrong with the broker, or None."""
        store = self._broker.store
        full = isinstance(store, DurableStore) and store.full
        said = "the disk is full; messages can be received and deleted, but not sent"
        return self._failure() or (said if full else None)

    def _failure(self) -> str | None:
        """Return why the broker is not ready, or None. With a full disk it is still ready."""
        if self._broker.closed:
            return "stopping"
        store = self._broker.store
        if isinstance(store, DurableStore) and store.log.poisoned is not None:
            return "the log failed; the broker is read-only"
        return None


async def _store_failure(shared: SharedQueues) -> str | None:
    """Return why a shared store can't be used, or None."""
    try:
        await asyncio.wait_for(shared.check(), _STORE_SECONDS_MAX)
    except (MailboxError, TimeoutError) as error:
        return f"the store does not answer: {str(error) or 'no answer in time'}"
    return None


def _answer(failure: str | None, problem: str | None) -> Response:
    return Response(503 if failure else 200, f"{problem or 'ok'}\n".encode(), _PLAIN)
