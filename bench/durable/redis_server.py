"""Redis with an append-only file, through redis-py: a server of our own on a random port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from bench.durable.contestants import BODY, Contestant, Verbs
from bench.harness import UnavailableError
from pillarbox.testing.redis import RedisServer, free_ports

CONNECTIONS_MAX = 256


@contextmanager
def _server(path: Path, synced: bool) -> Iterator[redis.Redis]:
    level = "always" if synced else "everysec"
    options = ("--appendonly", "yes", "--appendfsync", level, "--auto-aof-rewrite-percentage", "0")
    server = RedisServer(str(path), free_ports(1)[0], *options)
    try:
        server.start()
    except (FileNotFoundError, TimeoutError) as reason:
        raise UnavailableError(str(reason)) from None
    try:
        with redis.Redis(port=server.port, max_connections=CONNECTIONS_MAX) as client:
            yield client
    finally:
        server.kill()


@contextmanager
def _list(path: Path, synced: bool) -> Iterator[Verbs]:
    with _server(path, synced) as client:

        def cycle() -> None:
            client.lpush("line", BODY)
            taken = client.lmove("line", "taken", "RIGHT", "LEFT")
            client.lrem("taken", 1, taken)

        yield Verbs(lambda: client.lpush("line", BODY), cycle)


@contextmanager
def _stream(path: Path, synced: bool) -> Iterator[Verbs]:
    fields = {"body": BODY}
    with _server(path, synced) as client:
        client.xgroup_create("line", "workers", mkstream=True)

        def cycle() -> None:
            client.xadd("line", fields)
            ((_, ((key, _),)),) = client.xreadgroup("workers", "one", {"line": ">"}, count=1)
            with client.pipeline() as both:  # one round trip
                both.xack("line", "workers", key)
                both.xdel("line", key)
                both.execute()

        yield Verbs(lambda: client.xadd("line", fields), cycle)


REDIS_LIST = Contestant(
    "Redis list", _list, "time limit of a lease, delivery count", acknowledges=True
)
REDIS_STREAM = Contestant("Redis stream", _stream, "delay, priority", acknowledges=True)
