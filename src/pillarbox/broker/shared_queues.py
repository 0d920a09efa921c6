"""The queues of a store that several brokers serve: found, created, changed and deleted there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

from pillarbox.broker.attributes import checked, redrive_policy
from pillarbox.broker.catalogue import name_in, of_account, plain_name, text_of, told_of
from pillarbox.broker.errors import SqsError, no_such_queue
from pillarbox.broker.queue import FIFO_SUFFIX, BrokerQueue, QueueAttributes, Queues
from pillarbox.broker.redrive import check_target
from pillarbox.broker.shared_queue import SharedQueue
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.core.queue import NEVER
from pillarbox.extras import extra
from pillarbox.logger import logger
from pillarbox.mailbox.runner import Verb, run_async
from pillarbox.mailbox.shared import (
    QueueSettings,
    SharedQueueVerbs,
    SharedStore,
    StaleQueueError,
)

if TYPE_CHECKING:
    from pillarbox.broker.config import DeclaredQueue
    from pillarbox.broker.server import Broker

R = TypeVar("R")

_KNOWN_MAX: Final = 10_000
SCHEMES: Final = "redis://, rediss://, redis+cluster://, redis+sentinel:// or postgresql://"


def open_store(url: str) -> SharedStore:
    """The store that a URL names."""
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
    """All queues of a shared store, those used lately with their attributes."""

    def __init__(self, broker: Broker, store: SharedStore) -> None:
        self._broker, self.store = broker, store
        self.secret = b""
        self._known: dict[str, SharedQueue] = {}
        self._open: WeakSet[SharedQueue] = WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self.secret = await self._do(self.store.open())

    async def check(self) -> None:
        """Raise if the store can't be used."""
        await self._do(self.store.describe(""))

    async def stop_polls(self) -> None:
        """Answer every receive that waits."""
        for queue in list(self._open):
            queue.verbs.closed = True
            await self.store.wake(queue.verbs)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.store.close()

    def in_background(self, work: Coroutine[Any, Any, object]) -> None:
        async def run() -> None:
            try:
                await work
            except (MailboxError, SqsError) as error:  # their leases will run out
                logger.warning("messages could not be given back", error=str(error))

        task = self._broker.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, verb: Verb[R]) -> R:
        return await run_async(self.store.do, verb)

    def verbs(self, name: str, version: str) -> SharedQueueVerbs:
        verbs = self.store.queue(name, version, self._broker.config.in_flight_max)
        verbs.closed = self._broker.closed
        return verbs

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    async def by_url(
        self, url: str | None, namespace: str, account: str, *, fresh: bool = False
    ) -> BrokerQueue:
        name = namespace + name_in(of_account(url, account))
        known = self._known.get(name)
        if known is not None and not fresh:
            return known
        found = await self.find(name)
        if found is None:
            raise no_such_queue()
        return found

    async def find(self, name: str) -> SharedQueue | None:
        described = await self._do(self.store.describe(name))
        if described is None:
            self.forget(name)
            return None
        queue = SharedQueue(self, name, described)
        self._open.add(queue)
        if described.version:  # else nobody would notice that it was changed
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[name] = queue
        return queue

    async def names(self) -> Iterable[str]:
        return await self._do(self.store.names())

    async def create(self, name: str, notes: dict[str, Any], now_seconds: int) -> BrokerQueue:
        stamped = {**notes, "created": now_seconds, "modified": now_seconds, "keeps": False}
        settings = await self._settings(name, stamped, None)
        if not await self._do(self.store.create(name, stamped, settings)):
            raise StaleQueueError(f"queue {name!r} was created meanwhile")
        found = await self.find(name)
        if found is None:
            raise no_such_queue()
        return found

    async def change(
        self, queue: BrokerQueue, now_seconds: int, *, take_over: bool = False, **changes: Any
    ) -> None:
        assert isinstance(queue, SharedQueue)
        notes = {"created": now_seconds, **queue.described.notes, **changes}
        if "attributes" in changes:
            notes.setdefault("keeps", "attributes" not in queue.described.notes)
            notes["modified"] = now_seconds
        settings = await self._settings(queue.name, notes, queue)
        version = queue.described.version
        await self._do(self.store.configure(queue.name, version, notes, settings))
        self.forget(queue.name)

    async def _settings(
        self, name: str, notes: dict[str, Any], queue: SharedQueue | None
    ) -> QueueSettings:
        """How the queue behaves by these notes; what the store has to know is noted there."""
        policy = notes.get("attributes", {}).get("RedrivePolicy")
        dead, most = None, 0
        if policy:
            wanted = redrive_policy(policy)
            namespace = name.removesuffix(plain_name(name))
            full = namespace + plain_name(wanted.deadLetterTargetArn)
            arn = self._broker.catalogue.arn
            named = await self.find(full) if arn(full) == wanted.deadLetterTargetArn else None
            is_target = queue is not None and bool(await self.sources_of(queue))
            target = check_target(policy, name, arn(name), named, is_target=is_target)
            if target.name != name:
                dead, most = target.name, wanted.maxReceiveCount
        elif queue is not None and not queue.given.get("RedrivePolicy"):
            dead, most = queue.dead_letters or (None, 0)  # that of a mailbox
        retention = QueueAttributes(name, notes).retention_ns
        notes["retention"] = None if retention >= NEVER else retention
        notes["dead"] = None if dead is None else [dead, most]
        return QueueSettings(notes["retention"], dead, most)

    async def drop(self, queue: BrokerQueue) -> None:
        self.forget(queue.name)
        await self._do(self.store.drop(queue.name, self._broker.config.recreate_after_seconds))

    async def dropped_recently(self, name: str) -> bool:
        if not self._broker.config.recreate_after_seconds:
            return False
        return await self._do(self.store.dropped_recently(name))

    async def declare(self, declared: Mapping[str, DeclaredQueue], now_seconds: int) -> None:
        """Create the queues that a configuration names, or change them to what it says."""
        for name, wanted in sorted(
            declared.items(), key=lambda item: "RedrivePolicy" in item[1].attributes
        ):
            with told_of(name):
                await self._declare(name, wanted, now_seconds)

    async def _declare(self, name: str, wanted: DeclaredQueue, now_seconds: int) -> None:
        given = {key: text_of(value) for key, value in wanted.attributes.items()}
        fifo = name.endswith(FIFO_SUFFIX)
        if fifo:
            given["FifoQueue"] = "true"
        given = checked(given, fifo=fifo)
        while True:  # another broker may be declaring the same
            notes: dict[str, Any] = {
                "attributes": given,
                "tags": wanted.tags,
                "priority": wanted.priority,
                "keeps": False,
            }
            queue = await self.find(name)
            try:
                if queue is None:
                    await self.create(name, notes, now_seconds)
                    return
                notes["attributes"] = {**queue.given, **given}
                known = queue.described.notes
                if notes != {each: known.get(each) for each in notes}:
                    await self.change(queue, now_seconds, **notes)
                return
            except StaleQueueError:
                continue

    async def sources_of(self, queue: BrokerQueue) -> Sequence[str]:
        assert isinstance(queue, SharedQueue)
        found = []
        for source in queue.described.sources:
            theirs = await self._do(self.store.describe(source))
            if theirs is not None and theirs.dead == queue.name:
                found.append(source)
        return sorted(found)
