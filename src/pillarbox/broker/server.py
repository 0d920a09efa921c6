"""The broker: a store, its network face, and its life from start to a graceful stop.

`Broker.start` opens the store and listens; `stop` answers whoever is parked, lets answers
under way leave, and closes the store, so that its log is synced. All of it runs on one event
loop; other packages hang their handlers into `routes`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import product
from threading import get_ident
from typing import Final

from pillarbox.broker.access import Access
from pillarbox.broker.catalogue import Catalogue
from pillarbox.broker.config import Config
from pillarbox.broker.confirmations import Confirmations
from pillarbox.broker.health import Health
from pillarbox.broker.http import Answer, Handler, Request, Response, Routes
from pillarbox.broker.metrics import Metrics
from pillarbox.broker.moves import Moves
from pillarbox.broker.native import Native
from pillarbox.broker.retention import is_due, sweep
from pillarbox.broker.site import Site
from pillarbox.broker.sqs import Sqs
from pillarbox.broker.sqs_json import refusal
from pillarbox.broker.tls import Tls
from pillarbox.clock import Clock
from pillarbox.core.limits import SECOND_NS
from pillarbox.logger import logger
from pillarbox.mailbox.desk import Desk
from pillarbox.mailbox.ledger import DurableStore
from pillarbox.mailbox.locked import Written
from pillarbox.mailbox.store import Store

_KEEP_HOUSE_NS: Final = 5 * SECOND_NS


class Broker:
    """One broker. `store` and `routes` are open to those who add to it."""

    def __init__(
        self, config: Config, *, store: Store | None = None, clock: Clock | None = None
    ) -> None:
        self.config = config
        self.tls = _tls(config)
        self.store = store or _open_store(config, clock)
        self.catalogue = Catalogue(self.store, config)
        self.access = Access(config)
        self.metrics = Metrics(self)
        self.moves = Moves(self)
        self.sqs = Sqs(self)
        self.routes = Routes(self.sqs.handle)
        health = Health(self)
        self.routes.add("/livez", health.livez)
        self.routes.add("/readyz", health.readyz)
        self.routes.add("/metrics", self.guarded(self.metrics.handle))
        self.routes.add("/pillarbox", Native(self).handle)  # which knows its clients itself
        self.closed = False  # as the owner of parked polls
        self.port = 0
        self._rest: Callable[[], object] = lambda: None  # ends the housekeeping
        self.written: list[Written] = []  # what the request in hand has to be confirmed
        self.next_request_id: Callable[[], str] = map("".join, product(*_REQUEST_ID)).__next__

    @property
    def url(self) -> str:
        scheme = "https" if self.tls is not None else "http"
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{scheme}://{host}:{self.port}"

    async def start(self) -> str:
        """Listen; the URL. The caller's thread and loop are the broker's from now on."""
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self._holding: AbstractContextManager[list[Written]] = self.store.holding()
        self.written = self._holding.__enter__()
        self._confirmations = Confirmations(self.loop, self.metrics)
        self.site = Site(
            self.routes.handle,
            refusal,
            idle_seconds=self.config.idle_seconds,
            connections_max=self.config.connections_max,
        )
        self.catalogue.declare(self.config.queues, self.now_seconds())
        self.moves.resume()
        self.written.clear()
        context = self.tls.context if self.tls is not None else None
        self.port = await self.site.listen(self.config.host, self.config.port, context)
        self._keep_house()
        logger.info("the broker listens", url=self.url, data=self.config.data or "in memory")
        return self.url

    def guarded(self, handler: Handler) -> Handler:
        """The handler, for clients whose key may do everything; all clients if there are none."""

        def guard(request: Request) -> Answer:
            refused = None if self.access.open_to_all else self.access.refuse(request, time.time())
            return refused or handler(request)

        return guard

    def open_queue(self, name: str) -> Desk:
        """The desk of a queue for other clients than SQS's; made if it is not there."""
        return self.catalogue.open(name)

    def now_seconds(self) -> int:
        """The time of day."""
        return (self.store.clock.now() + self.store.clock.epoch_ns) // SECOND_NS

    # -- confirmations -----------------------------------------------------------------------

    def confirmed(self, response: Response) -> Response:
        """Hold this answer back until all that was written for it can't be lost any more."""
        if self.written:
            # Confirmations come in the order of writing, so the last one is enough.
            response.after = self._confirmations.gate(self.written[-1])
            self.written.clear()
        return response

    def flush(self) -> None:
        """What was written without haste (a queue's notes) has to be confirmed after all."""
        if isinstance(self.store, DurableStore) and self.store.written is not None:
            self.written.append(self.store.written)

    # -- housekeeping ------------------------------------------------------------------------

    def _keep_house(self) -> None:
        """Every few seconds: delete what is too old, look for a new certificate."""
        for queue in self.catalogue:
            if is_due(queue):
                sweep(queue)
                self.written.clear()
        if self.tls is not None:
            self.tls.reload_if_changed()
        clock = self.store.clock
        self._rest = clock.call_at(clock.now() + _KEEP_HOUSE_NS, self._keep_house, self.loop)

    async def stop(self) -> None:
        """Answer whoever is parked, finish what is under way, and close the store."""
        self.closed = self.site.stopping = True
        self._rest()
        for desk in list(self.store.desks.values()):
            desk.wake_all(self)
        await self.moves.stop()
        await self.site.close(self.config.stop_seconds)
        self._holding.__exit__(None, None, None)
        if isinstance(self.store, DurableStore):
            await asyncio.to_thread(self.store.close)
        logger.info("the broker has stopped", url=self.url)


_HEX: Final = [f"{number:03x}" for number in range(4_096)]
_REQUEST_PREFIX: Final = "-".join(
    (secrets.token_hex(4), secrets.token_hex(2), "4" + secrets.token_hex(2)[:3], "a000-")
)
_REQUEST_ID: Final = ((_REQUEST_PREFIX,), _HEX, _HEX, _HEX, _HEX)  # what each part may be


def _tls(config: Config) -> Tls | None:
    if config.tls_certificate is None or config.tls_key is None:
        return None
    return Tls(config.tls_certificate, config.tls_key)


def _open_store(config: Config, clock: Clock | None) -> Store:
    if config.data is None:
        return Store(clock)
    return DurableStore(config.data, durability=config.durability, clock=clock)
