"""The contract's backends on PostgreSQL: a real server, whose clock the suite moves on.

All functions are those of every mailbox, but for `pillarbox.clock`: it stands still until the case
moves it. `RealTimePostgresBackend` changes nothing and waits.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import psycopg

from pillarbox.mailbox.postgres import AsyncPostgresMailbox, PostgresMailbox
from pillarbox.mailbox.postgres.listener import listener_for
from pillarbox.mailbox.postgres.options import parse_url
from pillarbox.mailbox.postgres.schema import initialise
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.contract.backend import Capability, MailboxClassBackend
from pillarbox.testing.postgres import shared_server
from pillarbox.testing.redis import until

_START = 1_800_000_000 * 1_000_000  # 2027-01-15T08:00:00Z
_CLOCK = """
CREATE TABLE public.test_clock (now bigint NOT NULL);
INSERT INTO public.test_clock VALUES (0);
CREATE OR REPLACE FUNCTION pillarbox.clock() RETURNS bigint LANGUAGE sql VOLATILE AS
  'SELECT now FROM public.test_clock';
"""


@functools.cache
def _database(own_clock: bool) -> tuple[str, Any]:
    """A database for the cases, and a connection to it."""
    url = shared_server().database()
    conninfo = parse_url(url)[0]
    initialise(conninfo)
    connection = psycopg.connect(conninfo, autocommit=True)
    if own_clock:
        connection.execute(_CLOCK)
    return url, connection


class PostgresBackend(MailboxClassBackend):
    """`PostgresMailbox` in one database, which is shared by the cases and emptied after each."""

    name = "postgres"
    mailbox_class: Any = PostgresMailbox
    crowd_messages = 50
    own_clock = True

    def __init__(self) -> None:
        self.url, self._connection = _database(self.own_clock)
        super().__init__(url=self.url)
        self._listener = listener_for(parse_url(self.url)[0])
        self._now = _START
        self._set_clock()

    def _set_clock(self) -> None:
        if self.own_clock:
            self._connection.execute("UPDATE public.test_clock SET now = %s", (self._now,))

    def call_noisy(self, held_min: int, share: int) -> None:
        """Another rule for which tenants are noisy, and a short look, until the case is over."""
        self._noisy(held_min, share, 0)
        self._resources.callback(self._noisy, 30, 10, 100)

    def _noisy(self, held_min: int, share: int, more: int) -> None:
        rule = f"held >= {held_min} AND held * {share} > coalesce(in_flight, 0)"
        for function, result in (
            ("is_noisy(held bigint, in_flight bigint) RETURNS boolean", rule),
            ("window_of(count_ integer) RETURNS integer", f"count_ + {more}"),
        ):
            self._connection.execute(
                f"CREATE OR REPLACE FUNCTION pillarbox.{function} "
                f"LANGUAGE sql IMMUTABLE AS 'SELECT {result}'"
            )

    def _ids(self, where: str = "true", *parameters: Any) -> list[int]:
        rows = self._connection.execute(
            f"SELECT id FROM pillarbox.queues WHERE {where}", parameters
        )
        return [row[0] for row in rows]

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * 1_000_000)
        self._set_clock()
        for queue in self._ids():  # whoever sleeps looks at the clock
            self._connection.execute("SELECT pg_notify('pillarbox', %s)", (f"{queue} 1000",))

    def wait_until_parked(self, mailbox: Mailbox[Any], count: int = 1) -> None:
        parked = f"{count} receives are parked on {mailbox.name!r}"

        def are_parked() -> bool:
            return sum(map(self._listener.parked, self._ids("name = %s", mailbox.name))) >= count

        until(are_parked, parked, self.patience_seconds)

    def close(self) -> None:
        super().close()
        self._listener.release()
        for table in ("messages", "duplicates", "queues"):  # quicker than TRUNCATE
            self._connection.execute(f"DELETE FROM pillarbox.{table}")


class AsyncPostgresBackend(PostgresBackend):
    """`AsyncPostgresMailbox`, driven from threads through an event loop of its own."""

    name = "async postgres"
    mailbox_class = AsyncPostgresMailbox


class RealTimePostgresBackend(PostgresBackend):
    """Time that passes by itself: some minutes for all the cases."""

    name = "postgres, real time"
    own_clock = False

    def __init__(self) -> None:
        super().__init__()
        self.cannot = {Capability.TIME_TRAVEL: "the server's clock can't be set"}

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)
