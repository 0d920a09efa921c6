"""The contract's backends on Redis: real servers, and scripts whose clock the suite moves on.

The scripts are those of every mailbox, but for the piece that reads the time: it stands still
until the case moves it. `RealTimeRedisBackend` changes nothing and waits.
"""

from __future__ import annotations

import time
from typing import Any

from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.redis import AsyncRedisMailbox, RedisMailbox
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.redis.scripts import Scripts
from pillarbox.testing.contract.backend import Capability, MailboxClassBackend
from pillarbox.testing.redis import RedisServer, shared_cluster, shared_server, until

_START = 1_800_000_000 * 1_000_000  # 2027-01-15T08:00:00Z


class RedisBackend(MailboxClassBackend):
    """`RedisMailbox` on one server, which is shared by the cases and emptied after each."""

    name = "redis"
    mailbox_class: Any = RedisMailbox
    crowd_messages = 100

    def __init__(self) -> None:
        self._now = _START
        self.scripts = Scripts(now=self._clock())
        self.url = self.start()
        super().__init__(url=f"{self.url}/-", scripts=self.scripts)

    def _clock(self) -> str:
        return f"local now = {self._now}\n"

    def call_noisy(self, held_min: int, share: int) -> None:
        """Another rule for which tenants are noisy."""
        rule = f"held >= {held_min} and held * {share} > in_flight"
        self.scripts.replace(noisy=f"local function is_noisy(held, in_flight) return {rule} end\n")

    def start(self) -> str:
        """Where the queues are."""
        return shared_server().url

    def servers(self) -> list[RedisServer]:
        return [shared_server()]

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * 1_000_000)
        self.scripts.replace(now=self._clock())
        for server in self.servers():  # whoever sleeps looks at the clock
            for client in server.blocked():
                server.ask("CLIENT", "UNBLOCK", client)

    def wait_until_parked(self, mailbox: Mailbox[Any], count: int = 1) -> None:
        server = self.server_of(mailbox.name)
        parked = f"{count} receives are parked on {mailbox.name!r}"
        until(lambda: len(server.blocked()) >= count, parked, self.patience_seconds)

    def server_of(self, name: str) -> RedisServer:
        """The server that has the queue."""
        return shared_server()

    def close(self) -> None:
        super().close()
        for server in self.servers():
            server.ask("FLUSHALL")
            if self._now != _START:  # scripts with a time of their own: nobody needs them again
                server.ask("SCRIPT", "FLUSH")


class RedisClusterBackend(RedisBackend):
    """The same on a cluster of three masters and three replicas."""

    name = "redis cluster"

    def start(self) -> str:
        return shared_cluster().url

    def servers(self) -> list[RedisServer]:
        return shared_cluster().masters()

    def server_of(self, name: str) -> RedisServer:
        return shared_cluster().master_of(keys_of(name).slot)


class AsyncRedisBackend(RedisBackend):
    """`AsyncRedisMailbox`, driven from threads through an event loop of its own."""

    name = "async redis"
    mailbox_class = AsyncRedisMailbox


class AsyncRedisClusterBackend(AsyncRedisBackend, RedisClusterBackend):
    """The same on a cluster."""

    name = "async redis cluster"


class RealTimeRedisBackend(RedisBackend):
    """One server, and time that passes by itself: some minutes for all the cases."""

    name = "redis, real time"

    def __init__(self) -> None:
        super().__init__()
        self.cannot = {Capability.TIME_TRAVEL: "the server's clock can't be set"}
        self.scripts = self._where["scripts"] = Scripts()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)
