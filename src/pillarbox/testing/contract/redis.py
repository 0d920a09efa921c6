"""The contract's backends on Redis: real servers, and scripts whose clock the suite moves on.

The scripts are those of every mailbox, but for the piece that reads the time: it stands still
until the case moves it. `RealTimeRedisBackend` changes nothing and waits.
"""

from __future__ import annotations

import secrets
import time
from itertools import count
from typing import Any

from pillarbox.mailbox.protocol import DeadLetterPolicy, Mailbox, Redelivery
from pillarbox.mailbox.redis import AsyncRedisMailbox, RedisMailbox
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.redis.scripts import Scripts
from pillarbox.testing.contract.as_sync import EventLoopThread, SyncFace
from pillarbox.testing.contract.backend import Backend, Capability
from pillarbox.testing.redis import RedisServer, shared_cluster, shared_server, until

_START = 1_800_000_000 * 1_000_000  # 2027-01-15T08:00:00Z


class RedisBackend(Backend):
    """`RedisMailbox` on one server, which is shared by the cases and emptied after each."""

    name = "redis"
    mailbox_class: Any = RedisMailbox
    crowd_messages = 100

    def __init__(self) -> None:
        self._now = _START
        self.scripts = Scripts(now=self._clock())
        self._numbers = count(1)
        self._opened: list[Any] = []
        self._word = secrets.token_hex(4)
        self.url = self.start()

    def _clock(self) -> str:
        return f"local now = {self._now}\n"

    def start(self) -> str:
        """Where the queues are."""
        return shared_server().url

    def servers(self) -> list[RedisServer]:
        return [shared_server()]

    def open(
        self,
        body_type: Any = Any,
        *,
        name: str | None = None,
        dead_letters: DeadLetterPolicy | None = None,
        redelivery: Redelivery = "tail",
        capacity: int | None = None,
    ) -> Mailbox[Any]:
        return self._open(
            name if name is not None else f"box-{self._word}-{next(self._numbers)}",
            body_type,
            dead_letters=dead_letters,
            redelivery=redelivery,
            capacity=capacity,
        )

    def again(self, mailbox: Mailbox[Any], body_type: Any = Any) -> Mailbox[Any]:
        return self._open(mailbox.name, body_type)

    def _open(self, name: str, body_type: Any, **options: Any) -> Mailbox[Any]:
        url = f"{self.url}/-"
        mailbox = self.mailbox_class(name, body_type, url=url, scripts=self.scripts, **options)
        face = self._face(mailbox)
        self._opened.append(face)
        return face

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
        for face in self._opened:
            face.close()
        for server in self.servers():
            server.ask("FLUSHALL")
            if self._now != _START:  # scripts with a time of their own: nobody needs them again
                server.ask("SCRIPT", "FLUSH")

    def _face(self, mailbox: Any) -> Mailbox[Any]:
        face: Mailbox[Any] = mailbox
        return face


class RedisClusterBackend(RedisBackend):
    """The same on a cluster of three masters and three replicas."""

    name = "redis cluster"

    def start(self) -> str:
        return shared_cluster().url

    def servers(self) -> list[RedisServer]:
        return shared_cluster().masters()

    def server_of(self, name: str) -> RedisServer:
        return shared_cluster().master_of(keys_of(name).slot)


class _Async(RedisBackend):
    mailbox_class = AsyncRedisMailbox

    def __init__(self) -> None:
        super().__init__()
        self.loop = EventLoopThread()

    def close(self) -> None:
        super().close()
        self.loop.close()

    def _face(self, mailbox: Any) -> Mailbox[Any]:
        return SyncFace(mailbox, self.loop)


class AsyncRedisBackend(_Async):
    """`AsyncRedisMailbox`, driven from threads through an event loop of its own."""

    name = "async redis"


class AsyncRedisClusterBackend(_Async, RedisClusterBackend):
    """The same on a cluster."""

    name = "async redis cluster"


class RealTimeRedisBackend(RedisBackend):
    """One server, and time that passes by itself: some minutes for all the cases."""

    name = "redis, real time"

    def __init__(self) -> None:
        super().__init__()
        self.cannot = {Capability.TIME_TRAVEL: "the server's clock can't be set"}
        self.scripts = Scripts()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)
