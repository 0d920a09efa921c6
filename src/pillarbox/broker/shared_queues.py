"""The queues of a store that several brokers share: look up, create, change and delete."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

import msgspec

from pillarbox.broker.config import DeclaredQueue, blaming_configuration
from pillarbox.broker.errors import SqsError
from pillarbox.broker.heartbeat import Heartbeat
from pillarbox.broker.queue import BrokerQueue, Queues, retention_ns
from pillarbox.broker.queue_names import FIFO_SUFFIX
from pillarbox.broker.shared_moves import SharedMoves
from pillarbox.broker.shared_queue import SharedQueue
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import NEVER
from pillarbox.extras import extra
from pillarbox.logger import logger
from pillarbox.mailbox.protocol import Stats
from pillarbox.mailbox.runner import Verb, run_async
from pillarbox.mailbox.shared import (
    QueueSettings,
    SharedQueueVerbs,
    SharedStore,
    StaleQueueError,
)

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

R = TypeVar("R")

_NAME: Final = re.compile(r"[\w.:-]{1,200}\Z", re.ASCII)
_KNOWN_MAX: Final = 10_000
_SWEEP_NS: Final = 30 * SECOND_NS  # interval of retention
_AT_ONCE: Final = 16  # concurrent requests to the store about all queues
SCHEMES: Final = "redis://, rediss://, redis+cluster://, redis+sentinel:// or postgresql://"


def open_store(url: str) -> SharedStore:
    """Open the store at a URL."""
    scheme = url.partition(":")[0]
    if scheme.partition("+")[0] in ("redis", "rediss"):
        with extra("redis", "a store on Redis"):
            from pillarbox.mailbox.redis.shared import RedisSharedStore  # noqa: PLC0415 - an extra

        return RedisSharedStore(url)
    if scheme in ("postgresql", "postgres"):
        with extra("postgres", "a store in PostgreSQL"):
            from pillarbox.mailbox.postgres.shared import PostgresSharedStore  # noqa: PLC0415

        return PostgresSharedStore(url)
    raise InvalidParameterError("store", scheme, f"a URL that begins with {SCHEMES}")


class SharedQueues(Queues):
    """All queues of a shared store, with a cache of attributes."""

    def __init__(self, broker: Broker, store: SharedStore) -> None:
        super().__init__(broker)
        self.store = store
        self.secret = b""
        self.heartbeat = Heartbeat(broker, self)
        self.moves = SharedMoves(broker, self)
        self._known: dict[str, SharedQueue] = {}
        self._open: WeakSet[SharedQueue] = WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sweep_at = 0

    async def start(self) -> None:
        self.secret = await self.do(self.store.open())
        self._broker.access.token_secret = self.secret

    async def check(self) -> None:
        """Raise if the store can't be used."""
        await self.do(self.store.describe(""))

    async def stop_polls(self) -> None:
        """End every long poll."""
        for queue in list(self._open):
            queue.verbs.closed = True
            await self.store.wake(queue.verbs)

    async def close(self) -> None:
        await self.heartbeat.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.store.close()

    def in_background(self, work: Coroutine[Any, Any, object]) -> None:
        async def run() -> None:
            try:
                await work
            except (MailboxError, SqsError) as error:  # the leases will expire
                logger.warning("messages could not be given back", error=str(error))

        task = self._broker.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def do(self, verb: Verb[R]) -> R:
        return await run_async(self.store.do, verb)

    def verbs(self, name: str, version: str) -> SharedQueueVerbs:
        verbs = self.store.queue(name, version, self._broker.config.in_flight_max)
        verbs.closed = self._broker.closed
        return verbs

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def message_id(self, store_id: str) -> str:
        """Return a UUID, version 4 in form, that is the same at every broker."""
        text = hashlib.blake2b(store_id.encode(), key=self.secret, digest_size=16).hexdigest()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    async def by_name(self, name: str, *, fresh: bool = False) -> BrokerQueue:
        known = None if fresh else self._known.get(name)
        return known or await super().by_name(name)

    async def find(self, name: str) -> SharedQueue | None:
        described = None
        if _NAME.match(name):  # else it can't exist
            described = await self.do(self.store.describe(name))
        if described is None:
            self.forget(name)
            return None
        queue = SharedQueue(self, name, described)
        self._open.add(queue)
        if described.version:  # without a version, a stale cache would not be detected
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[name] = queue
        return queue

    async def names(self) -> Iterable[str]:
        return await self.do(self.store.names())

    async def of_all(
        self, ask: Callable[[str], Coroutine[Any, Any, R | None]]
    ) -> list[tuple[str, R]]:
        """Return `ask` of each queue, by name, without queues that were deleted meanwhile."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def of(name: str) -> R | None:
            async with gate:
                try:
                    return await ask(name)
                except SqsError:
                    return None

        names = sorted(await self.names())
        found = await asyncio.gather(*map(of, names))
        return [(name, each) for name, each in zip(names, found, strict=True) if each is not None]

    async def stats(self, name: str) -> Stats | None:
        """Return the message counts of a queue, or None if it does not exist."""
        queue = self._known.get(name) or await self.find(name)
        return await queue.stats() if queue is not None else None

    async def sweep(self) -> None:
        """Delete expired messages; only one of the brokers does this."""
        now = self._broker.store.clock.now()
        if now < self._sweep_at or not self.heartbeat.is_first:
            return
        self._sweep_at = now + _SWEEP_NS

        async def sweep(name: str) -> None:
            if self._broker.closed:
                return
            queue = self._known.get(name) or await self.find(name)
            if queue is not None:
                await queue.sweep()

        await self.of_all(sweep)

    async def create(self, name: str, notes: dict[str, Any]) -> BrokerQueue:
        now_seconds = self.now_seconds()
        stamped = {**notes, "created": now_seconds, "modified": now_seconds, "keeps": False}
        settings = await self._settings(name, stamped, None)
        if not await self.do(self.store.create(name, stamped, settings)):
            raise StaleQueueError(f"queue {name!r} was created meanwhile")
        return await super().by_name(name)

    async def open(self, name: str) -> None:
        dead = self._names.dead_letters_of(name)
        if dead is None:
            await self.ensure(name)
            return
        await self.ensure(dead)
        most = self._broker.config.max_deliveries
        policy = {"deadLetterTargetArn": self._names.arn(dead), "maxReceiveCount": most}
        await self.ensure(name, RedrivePolicy=msgspec.json.encode(policy).decode())

    async def ensure(self, name: str, **given: str) -> None:
        if await self.find(name) is None:
            attributes = {"FifoQueue": "true", **given} if name.endswith(FIFO_SUFFIX) else given
            with suppress(StaleQueueError):  # another broker created it
                await self.create(name, {"attributes": attributes})

    async def pause(self, name: str, *, paused: bool) -> None:
        await self.do(self.store.pause(name, paused=paused))

    async def change(self, queue: BrokerQueue, *, take_over: bool = False, **changes: Any) -> None:
        assert isinstance(queue, SharedQueue)
        notes = self._changed(queue.described.notes, changes)
        if "attributes" in changes:
            settings = await self._settings(queue.name, notes, queue, take_over=take_over)
        else:
            notes.setdefault("dead", queue.dead_letters)
            settings = QueueSettings(notes.get("retention"), *(queue.dead_letters or (None, 0)))
        version = queue.described.version
        await self.do(self.store.configure(queue.name, version, notes, settings))
        self.forget(queue.name)

    async def _settings(
        self,
        name: str,
        notes: dict[str, Any],
        queue: SharedQueue | None,
        *,
        take_over: bool = False,
    ) -> QueueSettings:
        """Return the queue's settings in the store for these notes."""
        attributes, dead, most = notes.get("attributes", {}), None, 0
        if attributes.get("RedrivePolicy"):
            found = await self._dead_letters(name, attributes)
            if found is not None:
                dead, most = found[0].name, found[1]
        elif queue is not None and not queue.given.get("RedrivePolicy") and not take_over:
            dead, most = queue.dead_letters or (None, 0)  # set by a mailbox
        retention = retention_ns(notes)
        notes["retention"] = None if retention >= NEVER else retention
        notes["dead"] = None if dead is None else [dead, most]
        fair = not name.endswith(FIFO_SUFFIX)
        return QueueSettings(notes["retention"], dead, most, fair)

    async def drop(self, queue: BrokerQueue) -> None:
        self.forget(queue.name)
        self.heartbeat.traffic.pop(queue.name, None)
        recent_seconds, dropped = self._broker.config.recreate_after_seconds, False
        while not dropped:
            with suppress(StaleQueueError):  # one of its source queues was changed
                await self.do(self.store.drop(queue.name, recent_seconds))
                dropped = True
        await self.moves.forget(queue.name)

    async def dropped_recently(self, name: str) -> bool:
        if not self._broker.config.recreate_after_seconds:
            return False
        return await self.do(self.store.dropped_recently(name))

    async def declare(self, declared: Mapping[str, DeclaredQueue]) -> None:
        notes = {name: wanted.notes(name) for name, wanted in declared.items()}
        for name in notes:  # create all first: their policies name one another
            await self.ensure(name)
        for name, known in notes.items():
            with blaming_configuration(name):
                await self._declare(name, known)

    async def _declare(self, name: str, notes: dict[str, Any]) -> None:
        while (queue := await self.find(name)) is not None:
            changes = {**notes, "attributes": {**queue.given, **notes["attributes"]}}
            known = queue.described.notes
            if changes == {each: known.get(each) for each in changes}:
                return
            with suppress(StaleQueueError):  # another broker may be declaring the same
                await self.change(queue, **changes)
                return

    async def sources_of(self, queue: BrokerQueue) -> Sequence[str]:
        assert isinstance(queue, SharedQueue)
        found = []
        for source in queue.described.sources:
            theirs = await self.do(self.store.describe(source))
            if theirs is not None and theirs.dead == queue.name:
                found.append(source)
        return sorted(found)
