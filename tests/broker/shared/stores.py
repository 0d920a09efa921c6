"""The stores that brokers can share, each with a clock that a test moves on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import psycopg
import pytest

from pillarbox.mailbox.postgres.options import parse_url
from pillarbox.mailbox.postgres.schema import initialise
from pillarbox.mailbox.postgres.shared import PostgresSharedStore
from pillarbox.mailbox.redis.scripts import Scripts
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.mailbox.shared import SharedStore
from pillarbox.testing import FakeClock
from pillarbox.testing.postgres import shared_server as postgres_server
from pillarbox.testing.redis import shared_cluster, shared_server


class StoreKind(ABC):
    """A real server, and its time."""

    name: ClassVar[str]
    url: str

    @abstractmethod
    def open(self) -> SharedStore:
        """For one broker."""

    @abstractmethod
    def set_time(self, microseconds: int) -> None: ...

    @abstractmethod
    def has_parked(self, queue: str) -> bool:
        """Whether a receive waits at a queue. A broker counts it before it has looked."""

    @abstractmethod
    def close(self) -> None: ...


class RedisKind(StoreKind):
    name = "redis"

    def __init__(self) -> None:
        self._server = shared_server()
        self.url = self._server.url
        self._scripts = Scripts()

    def open(self) -> SharedStore:
        return RedisSharedStore(self.url, {"scripts": self._scripts})

    def set_time(self, microseconds: int) -> None:
        self._scripts.replace(now=f"local now = {microseconds}\n")
        for client in self._server.blocked():  # whoever sleeps looks at the clock
            self._server.ask("CLIENT", "UNBLOCK", client)

    def has_parked(self, queue: str) -> bool:
        return bool(self._server.blocked())

    def close(self) -> None:
        self._server.ask("FLUSHALL")
        self._server.ask("SCRIPT", "FLUSH")


class RedisClusterKind(StoreKind):
    name = "redis cluster"

    def __init__(self) -> None:
        self._cluster = shared_cluster()
        self.url = self._cluster.url
        self._scripts = Scripts()

    def open(self) -> SharedStore:
        return RedisSharedStore(self.url, {"scripts": self._scripts})

    def set_time(self, microseconds: int) -> None:
        self._scripts.replace(now=f"local now = {microseconds}\n")
        for server in self._cluster.masters():  # whoever sleeps looks at the clock
            for client in server.blocked():
                server.ask("CLIENT", "UNBLOCK", client)

    def has_parked(self, queue: str) -> bool:
        return any(server.blocked() for server in self._cluster.masters())

    def close(self) -> None:
        for server in self._cluster.masters():
            server.ask("FLUSHALL")
            server.ask("SCRIPT", "FLUSH")


class PostgresKind(StoreKind):
    name = "postgres"
    _CLOCK = """
    CREATE TABLE public.test_clock (now bigint NOT NULL);
    INSERT INTO public.test_clock VALUES (0);
    CREATE OR REPLACE FUNCTION pillarbox.clock() RETURNS bigint LANGUAGE sql VOLATILE AS
      'SELECT now FROM public.test_clock';
    """
    _PARKED = """
    SELECT 1 FROM pg_locks JOIN pillarbox.queues ON objid = id
    JOIN pg_database d ON d.oid = database
    WHERE classid = 1885500417 AND name = %s AND datname = current_database()
    """

    def __init__(self) -> None:
        self.url = postgres_server().database()
        conninfo = parse_url(self.url)[0]
        initialise(conninfo)
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._moved = False

    def open(self) -> SharedStore:
        return PostgresSharedStore(self.url)

    def set_time(self, microseconds: int) -> None:
        if not self._moved:
            self._connection.execute(self._CLOCK)
            self._moved = True
        self._connection.execute("UPDATE public.test_clock SET now = %s", (microseconds,))
        self._connection.execute(  # whoever sleeps looks at the clock
            "SELECT pg_notify('pillarbox', id || ' 1000') FROM pillarbox.queues"
        )

    def has_parked(self, queue: str) -> bool:
        return bool(self._connection.execute(self._PARKED, (queue,)).fetchall())

    def close(self) -> None:
        self._connection.close()


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


KINDS = [RedisKind, PostgresKind, pytest.param(RedisClusterKind, marks=pytest.mark.soak)]
