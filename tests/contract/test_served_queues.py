"""R39, R55: the rules of SQS queues, on mailboxes of every backend that has them."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from pillarbox import DeadLetterPolicy
from pillarbox.core.limits import SECOND_NS
from pillarbox.mailbox.postgres.shared import PostgresSharedStore
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.mailbox.runner import run_async
from pillarbox.mailbox.shared import QueueSettings, SharedStore
from pillarbox.testing.contract import Backend
from pillarbox.testing.contract.memory import MemoryBackend
from tests.contract.backends.broker import BrokerBackend, DurableBrokerBackend
from tests.contract.backends.durable import DurableBackend
from tests.contract.backends.postgres import PostgresBackend
from tests.contract.backends.redis import RedisBackend, RedisClusterBackend
from tests.contract.served import DeathOnReceive, DeduplicationByGroup, Pair, Retention

QUEUE, DEAD = "served", "served_dlq"


# -- a store in this process, and a broker over one ------------------------------------------------


class Local(DeathOnReceive, DeduplicationByGroup):
    backend: MemoryBackend

    def serve(self, *, max_deliveries: int = 0, retention_seconds: int | None = None) -> Pair:
        policy = DeadLetterPolicy(max_deliveries, DEAD) if max_deliveries else None
        box = self.backend.open(str, name=QUEUE, dead_letters=policy, redelivery="original")
        store = self.backend.store
        with store.lock:
            store.sessions[QUEUE].configure(dead_on_receive=True, deduplicate_by_group=True)
        return box, self.backend.open(str, name=DEAD)


class TestMemory(Local):
    def make_backend(self) -> Backend:
        return MemoryBackend()


class TestDurable(Local):
    def make_backend(self) -> Backend:
        return DurableBackend()


class TestBroker(Local, Retention):
    backend: BrokerBackend

    def make_backend(self) -> Backend:
        return BrokerBackend()

    def serve(self, *, max_deliveries: int = 0, retention_seconds: int | None = None) -> Pair:
        pair = super().serve(max_deliveries=max_deliveries)
        if retention_seconds is not None:
            given = {"MessageRetentionPeriod": str(retention_seconds)}
            _sqs(self.backend._where["url"], "SetQueueAttributes", QUEUE, Attributes=given)
        return pair


class TestDurableBroker(TestBroker):
    def make_backend(self) -> Backend:
        return DurableBrokerBackend()


def _sqs(url: str, action: str, queue: str, **fields: Any) -> None:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    head = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    body = {"QueueUrl": f"{url}/000000000000/{queue}", **fields}
    connection.request("POST", "/", json.dumps(body), head)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    connection.close()


# -- stores that brokers share ---------------------------------------------------------------------


class Shared(DeathOnReceive, Retention):
    def store(self) -> SharedStore:
        raise NotImplementedError

    def serve(self, *, max_deliveries: int = 0, retention_seconds: int | None = None) -> Pair:
        kept = None if retention_seconds is None else retention_seconds * SECOND_NS

        async def create() -> None:
            store = self.store()
            await run_async(store.do, store.open())
            for name in DEAD, QUEUE:
                dead = DEAD if name == QUEUE and max_deliveries else None
                settings = QueueSettings(kept, dead, max_deliveries if dead else 0)
                assert await run_async(store.do, store.create(name, {}, settings))
            await store.close()

        asyncio.run(create())
        return self.backend.open(str, name=QUEUE), self.backend.open(str, name=DEAD)


class TestRedis(Shared):
    backend: RedisBackend

    def make_backend(self) -> Backend:
        return RedisBackend()

    def store(self) -> SharedStore:
        return RedisSharedStore(self.backend.url)


class TestRedisCluster(TestRedis):
    def make_backend(self) -> Backend:
        return RedisClusterBackend()


class TestPostgres(Shared):
    backend: PostgresBackend

    def make_backend(self) -> Backend:
        return PostgresBackend()

    def store(self) -> SharedStore:
        return PostgresSharedStore(self.backend.url)
