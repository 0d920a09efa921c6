"""The heartbeats of brokers that share a store, with the traffic of each.

Every two seconds a broker writes a report, which expires after ten, and reads the reports of the
others in the same round trip. So each knows which brokers are alive, and the traffic of every
queue.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections import defaultdict
from datetime import UTC, datetime
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from pillarbox import __version__
from pillarbox.core.errors import MailboxError
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker
    from pillarbox.broker.shared_queues import SharedQueues

BEAT_SECONDS: Final = 2.0
ALIVE_SECONDS: Final = 10
_QUEUES_MAX: Final = 500  # in one report
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - an address to be replaced


class Traffic(Struct, array_like=True):
    """Message counts of one queue since the broker started, and the long polls waiting now."""

    sent: int = 0
    received: int = 0
    deleted: int = 0
    waiting: int = 0

    def add(self, other: Traffic) -> None:
        self.sent += other.sent
        self.received += other.received
        self.deleted += other.deleted
        self.waiting += other.waiting


class Report(Struct):
    """A broker's report about itself."""

    url: str
    version: str
    since: float  # seconds since the epoch
    queues: dict[str, Traffic]


class SeenBroker(NamedTuple):
    """A broker that shares the store."""

    url: str
    version: str
    since: datetime
    seconds_ago: float  # when it was last seen
    is_this: bool


class Heartbeat:
    """Sends the reports of one broker, and reads those of the others."""

    def __init__(self, broker: Broker, shared: SharedQueues) -> None:
        self._broker, self._shared = broker, shared
        self.id = secrets.token_hex(8)
        self._since = time.time()
        self._reports: dict[str, tuple[float, Report]] = {}  # by id: when it was seen
        self._beating: asyncio.Task[None] | None = None
        self.traffic: defaultdict[str, Traffic] = defaultdict(Traffic)  # through this broker

    async def start(self) -> None:
        await self.beat()
        self._beating = asyncio.create_task(self._beat_on())

    async def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            await self.beat(0)

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.beat()
            try:
                await self._shared.moves.look(set(self._reports))
            except Exception as error:  # noqa: BLE001 - without heartbeats it would seem dead
                logger.warning("could not look for move tasks to take over", error=str(error))

    async def beat(self, seconds: int = ALIVE_SECONDS) -> None:
        """Write a report and read those of all brokers; if the store is down, only log it."""
        said = msgspec.json.encode(self._report()).decode()
        try:
            found = await self._shared.do(self._shared.store.beat(self.id, seconds, said))
            self._reports = {
                each.id: (each.seen_at / 1e9, msgspec.json.decode(each.said, type=Report))
                for each in found
            }
        except (MailboxError, msgspec.MsgspecError) as error:
            logger.warning("could not send a heartbeat to the store", error=str(error))

    def _report(self) -> Report:
        busiest = nlargest(
            _QUEUES_MAX, self.traffic.items(), key=lambda each: each[1].sent + each[1].received
        )
        return Report(self._url(), __version__, self._since, dict(busiest))

    def _url(self) -> str:
        """Return the broker's URL, with the host name if it listens on all addresses."""
        url = urlsplit(self._broker.url)
        if self._broker.config.host in _EVERYWHERE:
            url = url._replace(netloc=f"{socket.gethostname()}:{self._broker.port}")
        return url.geturl()

    @property
    def is_first(self) -> bool:
        """Whether this broker does the work that only one of them should do."""
        return min(self._reports, default="") == self.id

    def brokers(self) -> list[SeenBroker]:
        """Return the brokers that are alive, oldest first."""
        now = time.time()
        found = [
            SeenBroker(
                report.url,
                report.version,
                datetime.fromtimestamp(report.since, UTC),
                max(0.0, now - seen_at),
                name == self.id,
            )
            for name, (seen_at, report) in list(self._reports.items())
        ]
        return sorted(found, key=lambda each: (each.since, each.url))

    def total(self, queue: str) -> Traffic:
        """Return the traffic of a queue over all brokers."""
        total = Traffic()
        total.add(self.traffic.get(queue, total))
        for name, (_, report) in list(self._reports.items()):
            if name != self.id and queue in report.queues:
                total.add(report.queues[queue])
        return total
