"""The stores that brokers can share, each with a clock that a test moves on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from pillarbox.mailbox.redis.scripts import Scripts
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.mailbox.shared import SharedStore
from pillarbox.testing import FakeClock
from pillarbox.testing.redis import shared_server


class StoreKind(ABC):
    """A real server, and its time."""

    name: ClassVar[str]

    @abstractmethod
    def open(self) -> SharedStore:
        """For one broker."""

    @abstractmethod
    def set_time(self, microseconds: int) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class RedisKind(StoreKind):
    name = "redis"

    def __init__(self) -> None:
        self._server = shared_server()
        self._scripts = Scripts()

    def open(self) -> SharedStore:
        return RedisSharedStore(self._server.url, {"scripts": self._scripts})

    def set_time(self, microseconds: int) -> None:
        self._scripts.replace(now=f"local now = {microseconds}\n")
        for client in self._server.blocked():  # whoever sleeps looks at the clock
            self._server.ask("CLIENT", "UNBLOCK", client)

    def close(self) -> None:
        self._server.ask("FLUSHALL")
        self._server.ask("SCRIPT", "FLUSH")


class SharedClock(FakeClock):
    """A fake clock that the store goes by as well."""

    def __init__(self, kind: StoreKind) -> None:
        super().__init__()
        self._kind = kind
        self._tell()

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._tell()

    def _tell(self) -> None:
        self._kind.set_time((self.now() + self.epoch_ns) // 1_000)


KINDS: list[type[StoreKind]] = [RedisKind]
