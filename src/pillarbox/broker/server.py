"""The broker: a store and its HTTP server, with startup and graceful shutdown.

`Broker.start` opens the store and listens; `stop` ends long polls, lets responses in progress
finish, and closes the store, which syncs its log. Everything runs on one event loop. Other
packages add their handlers to `routes`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from itertools import product
from threading import get_ident
from typing import Final

from pillarbox.broker.access import Access
from pillarbox.broker.audit import AuditLog
from pillarbox.broker.config import Config
from pillarbox.broker.confirmations import Confirmations
from pillarbox.broker.consumers import Consumers
from pillarbox.broker.cross_origin import CrossOriginProtection
from pillarbox.broker.health import Health
from pillarbox.broker.housekeeping import Housekeeping
from pillarbox.broker.http import Answer, Confirmation, Handler, Request, Routes
from pillarbox.broker.http_server import HttpServer
from pillarbox.broker.local_queues import LocalQueues
from pillarbox.broker.metrics import Metrics
from pillarbox.broker.moves import LocalMoves, Moves
from pillarbox.broker.native import Native
from pillarbox.broker.pauses import Pauses
from pillarbox.broker.queue import Queues
from pillarbox.broker.queue_names import QueueNames
from pillarbox.broker.rights import Rights
from pillarbox.broker.shared_native import SharedNative
from pillarbox.broker.shared_queues import SharedQueues, open_store
from pillarbox.broker.sqs import Sqs
from pillarbox.broker.sqs_json import refusal
from pillarbox.broker.tls import Tls
from pillarbox.clock import Clock
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.logger import logger
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.shared import SharedStore
from pillarbox.mailbox.store import Store

_STEPS_UNCONFIRMED_MAX: Final = 20  # steps of a long operation before it waits for the disk


class Broker:
    """A broker. Other packages may use `store` and add to `routes`."""

    def __init__(
        self,
        config: Config,
        *,
        store: Store | None = None,
        shared_store: SharedStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.tls: Tls | None = None
        if config.tls_certificate is not None and config.tls_key is not None:
            self.tls = Tls(config.tls_certificate, config.tls_key)
        self.audit = AuditLog(config.audit_log) if config.audit_log else None
        self.store = store or _open_store(config, clock)
        self.store.settles_all = False
        self.housekeeping = Housekeeping(self)
        self.names = QueueNames(config)
        self.local = LocalQueues(self)
        self.shared: SharedQueues | None = None
        if shared_store is None and config.store is not None:
            shared_store = open_store(config.store)
        if shared_store is not None:
            self.shared = SharedQueues(self, shared_store)
        self.queues: Queues = self.shared or self.local
        self.access = Access(config)
        self.rights = Rights(self)
        self.metrics = Metrics(self)
        self.consumers = Consumers()
        self.moves: Moves = self.shared.moves if self.shared else LocalMoves(self)
        self.sqs = Sqs(self)
        self.routes = Routes(self.sqs.handle)
        self.health = Health(self)
        self.routes.add("/livez", self.health.livez)
        self.routes.add("/readyz", self.health.readyz)
        self.routes.add("/metrics", self.guarded(self.metrics.handle))
        self.native = Native(self)
        native = SharedNative(self, self.shared) if self.shared else self.native
        self.routes.add("/pillarbox", native.handle)  # authenticates clients itself
        self.closed = False  # as the owner of parked polls
        self.port = 0
        self.confirmations: Confirmations | None = None  # not needed in memory
        self.next_request_id: Callable[[], str] = map("".join, product(*_REQUEST_ID)).__next__

    @property
    def url(self) -> str:
        scheme = "https" if self.tls is not None else "http"
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{scheme}://{host}:{self.port}"

    async def start(self) -> str:
        """Listen, and return the URL. The broker runs on the caller's event loop."""
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self._holding = self.store.holding()  # verbs don't wait for the disk in this thread
        self._holding.__enter__()
        if isinstance(self.store, DurableStore) and self.store.log.durability != "memory":
            self.confirmations = Confirmations(self.store, self.loop, self.metrics)
        self.http_server = HttpServer(
            self.routes.handle,
            refusal,
            CrossOriginProtection(
                self.config.host, self.config.allowed_hosts, any_host=not self.access.open_to_all
            ),
            shows_key=self.access.shows_key,
            buffer_bytes_max=self.config.request_buffer_bytes_max,
            idle_seconds=self.config.idle_seconds,
            connections_max=self.config.connections_max,
        )
        await self.queues.start()
        await self.queues.declare(self.config.queues)
        if isinstance(self.moves, LocalMoves):
            self.moves.resume()
        context = self.tls.context if self.tls is not None else None
        self.port = await self.http_server.listen(self.config.host, self.config.port, context)
        self.housekeeping.start()
        if self.shared is not None:
            await self.shared.heartbeat.start()
        logger.info("the broker listens", url=self.url, data=self.config.data or "in memory")
        return self.url

    def guarded(self, handler: Handler) -> Handler:
        """Wrap a handler so that, if there are keys, it needs one with every right."""

        def guard(request: Request) -> Answer:
            refused = None if self.access.open_to_all else self.access.refuse(request)
            return refused or handler(request)

        return guard

    def now_seconds(self) -> int:
        """Return Unix time."""
        return (self.store.clock.now() + self.store.clock.epoch_ns) // SECOND_NS

    # -- confirmations -----------------------------------------------------------------------

    def confirmation(self) -> Confirmation | None:
        """Return the confirmation that a response about a write must wait for, if any."""
        return self.confirmations.pending() if self.confirmations is not None else None

    async def saved(self) -> None:
        """Wait until everything written so far is confirmed."""
        if isinstance(self.store, DurableStore):
            await self.store.written

    async def in_slices(self, steps: Iterator[int]) -> int:
        """Run a long operation step by step with pauses for others; wait until confirmed."""
        total, pauses = 0, Pauses(self)
        for number, count in enumerate(steps, 1):
            total += count
            if number % _STEPS_UNCONFIRMED_MAX == 0:
                await self.saved()
            await pauses.pause()
        await self.saved()
        return total

    def reload(self, read: Callable[[], Config]) -> bool:
        """Reload certificate and keys, and reopen the audit log; return whether keys were read.

        A revoked key is refused from the next request on. The old keys stay if the file is
        invalid, or would change between a broker with keys and one without.
        """
        if self.tls is not None:
            self.tls.reload()
        if self.audit is not None:
            try:
                self.audit.reopen()
            except InvalidParameterError as error:
                logger.error("the audit log stays at its old file", error=str(error))
        try:
            keys = read().keys
        except (MailboxError, OSError) as error:
            logger.error("the configuration can't be used; the old keys stay", error=str(error))
            return False
        if bool(keys) == self.access.open_to_all:
            logger.error(
                "restart the broker to introduce keys, or to do without; the old keys stay"
            )
            return False
        self.access.replace_keys(keys)
        if self.audit is not None:
            self.audit.note("", "ReloadKeys", "", by="signal")
        logger.warning("the keys were read again", keys=[key.id for key in keys])
        return True

    async def stop(self) -> None:
        """End long polls, finish responses in progress, and close the store."""
        self.closed = self.http_server.stopping = True
        await self.housekeeping.stop()
        for session in list(self.store.sessions.values()):
            session.wake_all(self)
        if self.shared is not None:
            await self.shared.stop_polls()
        await self.moves.stop()
        await self.http_server.close(self.config.stop_seconds)
        await self.native.stop()
        if self.shared is not None:
            await self.shared.close()
        self._holding.__exit__(None, None, None)
        if isinstance(self.store, DurableStore):
            await asyncio.to_thread(self.store.close)
        if self.audit is not None:
            self.audit.close()
        logger.info("the broker has stopped", url=self.url)


_HEX: Final = [f"{number:03x}" for number in range(4_096)]
_REQUEST_PREFIX: Final = "-".join(
    (secrets.token_hex(4), secrets.token_hex(2), "4" + secrets.token_hex(2)[:3], "a000-")
)
_REQUEST_ID: Final = ((_REQUEST_PREFIX,), _HEX, _HEX, _HEX, _HEX)  # the parts, to be combined


def _open_store(config: Config, clock: Clock | None) -> Store:
    if config.data is None or config.store is not None:
        return Store(clock)
    return DurableStore(config.data, durability=config.durability, clock=clock)
