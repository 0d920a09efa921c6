"""R36: a master that a sentinel watches is found by its name, and its successor too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from pillarbox.mailbox.redis import open_url
from pillarbox.testing.redis import RedisServer, directory, free_ports, until


class Watched(NamedTuple):
    master: RedisServer
    replica: RedisServer
    sentinel: RedisServer


@pytest.fixture
def watched() -> Iterator[Watched]:
    with directory() as path:
        first, second, third = free_ports(3)
        master = RedisServer(path, first, "--repl-diskless-sync-delay", "0")
        replica = RedisServer(path, second, "--replicaof", "127.0.0.1", str(first))
        sentinel = RedisServer(
            path,
            third,
            f"sentinel monitor letters 127.0.0.1 {first} 1",
            "sentinel down-after-milliseconds letters 500",
            "sentinel failover-timeout letters 2000",
            sentinel=True,
        )
        servers = Watched(master, replica, sentinel)
        try:
            for server in servers:
                server.start()
            until(lambda: replica.info("replication")["master_link_status"] == "up", "in step")
            until(lambda: sentinel.info("sentinel")["master0"].count("slaves=1") == 1, "all known")
            yield servers
        finally:
            for server in servers:
                server.kill()


def test_R36_a_mailbox_behind_a_sentinel_outlives_its_master(watched: Watched) -> None:
    url = f"redis+sentinel://127.0.0.1:{watched.sentinel.port}/letters/orders"
    with open_url(url, str, durability="replicated") as box:
        box.send("before")
        watched.master.kill()
        with open_url(url, str, retry_seconds=30) as other:
            other.send("after")
            assert [m.body for m in other.receive(max_messages=10)] == ["before", "after"]
        assert box.stats().in_flight == 2
    assert watched.replica.info("replication")["role"] == "master"
