"""Redis with an append-only file, through redis-py: a server of our own on a random port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

import redis

from bench.durable.contestants import BODY, Contestant, Verbs
from bench.harness import UnavailableError

CONNECTIONS_MAX = 256
START_SECONDS_MAX = 20
INSTALL_SECONDS_MAX = 300


@cache
def _program() -> str:
    """The server's program; installed if it is missing and we may."""
    found = shutil.which("redis-server")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "--yes", "--quiet", "redis-server"]
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, env=environment, timeout=INSTALL_SECONDS_MAX, check=False, **quiet
            )
        found = shutil.which("redis-server")
    if found is None:
        raise UnavailableError("redis-server is not installed; try: apt-get install redis-server")
    return found


@contextmanager
def _server(path: Path, synced: bool) -> Iterator[redis.Redis]:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(path),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always" if synced else "everysec",
        "auto-aof-rewrite-percentage": "0",
    }
    command = [_program()]
    for name, value in options.items():
        command += [f"--{name}", value]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port, max_connections=CONNECTIONS_MAX) as client:
            _wait_for(client)
            yield client
    finally:
        server.terminate()
        server.wait()


def _wait_for(client: redis.Redis) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            client.ping()
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                raise UnavailableError("redis-server does not answer") from None
            time.sleep(0.05)
        else:
            return


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
