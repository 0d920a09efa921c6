"""Everyone in the races: Pillarbox, its peers on Redis, and the bare server.

A peer is driven through its own public calls; each has a server of its own, which keeps nothing
on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import kombu
import redis
from dramatiq.brokers.redis import RedisBroker
from huey.storage import RedisStorage
from rq import Queue as RqQueue

from bench.harness import UnavailableError
from bench.mailboxes import BODY, QUEUE, Cycle, dramatiq_cycle, mailbox_cycle
from pillarbox.mailbox.redis import RedisMailbox
from pillarbox.testing.redis import RedisServer, directory, free_ports

_GONE = "lease, redelivery: what is taken is gone"


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    opened: Callable[[], AbstractContextManager[Cycle]]
    lacks: str = ""
    leases: bool = False  # it gives out each message on a lease, and again when that runs out


@contextmanager
def server() -> Iterator[RedisServer]:
    """A server that keeps nothing."""
    with directory() as path:
        each = RedisServer(path, free_ports(1)[0], "--appendonly", "no")
        try:
            each.start()
        except FileNotFoundError as error:
            raise UnavailableError(str(error)) from error
        try:
            yield each
        finally:
            each.kill()


@contextmanager
def _pillarbox() -> Iterator[Cycle]:
    with server() as place, RedisMailbox(QUEUE, str, url=f"{place.url}/-") as box:
        yield mailbox_cycle(box)


@contextmanager
def _kombu() -> Iterator[Cycle]:
    with (
        server() as place,
        kombu.Connection(f"{place.url}/0") as connection,
        connection.SimpleQueue(QUEUE) as line,
    ):

        def cycle(count: int) -> None:
            for _ in range(count):
                line.put(BODY)
            for _ in range(count):
                line.get(timeout=5).ack()

        yield cycle


@contextmanager
def _dramatiq() -> Iterator[Cycle]:
    with server() as place:
        broker = RedisBroker(url=f"{place.url}/0", middleware=[])
        yield dramatiq_cycle(broker)
        broker.close()


@contextmanager
def _huey() -> Iterator[Cycle]:
    with server() as place:
        storage = RedisStorage(QUEUE, blocking=True, url=f"{place.url}/0")
        data = BODY.encode()

        def cycle(count: int) -> None:
            for _ in range(count):
                storage.enqueue(data)
            for _ in range(count):
                assert storage.dequeue() == data

        yield cycle
        storage.conn.close()


def work(body: str) -> None:
    """What an rq job names; it is never called here."""


@contextmanager
def _rq() -> Iterator[Cycle]:
    with server() as place, redis.Redis(port=place.port) as client:
        line = RqQueue(QUEUE, connection=client)

        def cycle(count: int) -> None:
            for _ in range(count):
                line.enqueue(work, BODY)
            for _ in range(count):
                found = RqQueue.dequeue_any([line], None, connection=client)
                assert found is not None
                found[0].delete()

        yield cycle


@contextmanager
def _raw() -> Iterator[Cycle]:
    with server() as place, redis.Redis(port=place.port) as client:

        def cycle(count: int) -> None:
            if count == 1:
                client.lpush(QUEUE, BODY)
                client.brpop(QUEUE)
                return
            with client.pipeline(transaction=False) as batch:
                for _ in range(count):
                    batch.lpush(QUEUE, BODY)
                batch.execute()
                for _ in range(count):
                    batch.brpop(QUEUE)
                batch.execute()

        yield cycle


PILLARBOX = Contestant("Pillarbox", _pillarbox)
RAW = Contestant("raw LPUSH and BRPOP", _raw, f"{_GONE}; the limit")
PEERS = (
    Contestant(
        "kombu",
        _kombu,
        "atomic receive, delivery count, dead letters; has a lease, of 1 hour",
        leases=True,
    ),
    Contestant(
        "dramatiq",
        _dramatiq,
        "lease, delivery count; what a dead worker had comes back",
    ),
    Contestant("huey", _huey, _GONE),
    Contestant("rq", _rq, "lease: its workers keep a registry of their own"),
)
