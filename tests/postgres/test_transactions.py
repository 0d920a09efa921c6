"""R140: sends and acknowledgements inside the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pillarbox import AsyncPostgresMailbox, PostgresMailbox
from pillarbox.core.errors import InvalidParameterError, ReceiptHandleExpiredError
from tests.postgres.waiting import until_parked

Transaction = Callable[[str], AbstractContextManager[Any]]


class Undo(Exception):
    """Rolls a transaction back."""


@contextmanager
def psycopg_transaction(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def with_other_rows(url: str) -> Iterator[Any]:
    factory = psycopg.ClientCursor
    with psycopg.connect(url, row_factory=dict_row, cursor_factory=factory) as connection:
        yield connection


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def django_transaction(url: str) -> Iterator[Any]:
    from django.conf import settings
    from django.db import transaction
    from django.db.backends.postgresql.base import DatabaseWrapper

    if not settings.configured:
        settings.configure(DATABASES={})
    info = psycopg.conninfo.conninfo_to_dict(url)
    wrapper = DatabaseWrapper(
        {
            "NAME": info["dbname"],
            "USER": info["user"],
            "PASSWORD": "",
            "HOST": info["host"],
            "PORT": info["port"],
            "OPTIONS": {},
            "TIME_ZONE": None,
            "CONN_HEALTH_CHECKS": False,
            "CONN_MAX_AGE": 0,
            "AUTOCOMMIT": True,
            "ATOMIC_REQUESTS": False,
        },
        alias="test",
    )
    from django.db import connections

    connections["test"] = wrapper
    try:
        with transaction.atomic(using="test"):
            yield wrapper
    finally:
        wrapper.close()


TRANSACTIONS = [
    psycopg_transaction,
    with_other_rows,
    sqlalchemy_session,
    sqlalchemy_connection,
    django_transaction,
]


@pytest.fixture(params=TRANSACTIONS, ids=lambda each: each.__name__)
def transaction(request: pytest.FixtureRequest) -> Transaction:
    chosen: Transaction = request.param
    return chosen


def test_R140_a_send_is_visible_when_its_transaction_commits(
    url: str, transaction: Transaction
) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        with transaction(url) as connection:
            message_id = box.send("a", connection=connection)
            box.send_many(["b", "c"], connection=connection)
            assert box.stats().total == 0
        assert [m.body for m in box.receive(max_messages=10)] == ["a", "b", "c"]
        assert message_id


def test_R140_a_send_is_gone_when_its_transaction_is_rolled_back(
    url: str, transaction: Transaction
) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        with suppress(Undo), transaction(url) as connection:
            box.send("a", connection=connection)
            raise Undo
        assert box.stats().total == 0


def test_R140_an_acknowledgement_counts_when_its_transaction_commits(
    url: str, transaction: Transaction
) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        box.send_many(["a", "b"])
        first, second = box.receive(max_messages=2)
        with suppress(Undo), transaction(url) as connection:
            assert first.acknowledge(connection=connection)
            raise Undo
        assert box.stats().in_flight == 2
        with transaction(url) as connection:
            assert first.acknowledge(connection=connection, strict=True)
            assert box.acknowledge_many([second], connection=connection) == [True]
        assert box.stats().total == 0


def test_R140_a_stale_delivery_rolls_the_effect_back(url: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE effects (body text)")
        connection.commit()
        box.send("a")
        (stale,) = box.receive()
        stale.nack()

        def work() -> None:
            with connection.transaction():
                connection.execute("INSERT INTO effects VALUES ('a')")
                stale.acknowledge(connection=connection, strict=True)

        with pytest.raises(ReceiptHandleExpiredError):
            work()
        assert connection.execute("SELECT count(*) FROM effects").fetchone() == (0,)


def test_R140_a_lease_that_ends_during_the_transaction_redelivers_nothing(url: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        box.send("a")
        (message,) = box.receive(visibility_timeout=0.2)
        with psycopg.connect(url) as connection:
            assert message.acknowledge(connection=connection, strict=True)
            assert list(box.receive(wait_time_seconds=0.5)) == []  # past its deadline
        assert box.stats().total == 0


def test_R140_a_parked_receive_is_served_when_a_transaction_that_began_earlier_commits(
    url: str,
) -> None:
    async def main() -> list[str]:
        async with AsyncPostgresMailbox("orders", str, url=url) as box:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await box.send("a", connection=connection)
                parked = asyncio.ensure_future(box.receive(wait_time_seconds=20))
                await asyncio.to_thread(until_parked, box)
                assert not parked.done()
            return [message.body for message in await asyncio.wait_for(parked, 5)]

    assert asyncio.run(main()) == ["a"]


def test_R140_an_async_session_of_sqlalchemy_takes_part(url: str) -> None:
    async def main() -> None:
        engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        async with AsyncPostgresMailbox("orders", str, url=url) as box:
            async with AsyncSession(engine) as session, session.begin():
                await session.execute(sqlalchemy.text("SELECT 1"))
                await box.send("a", connection=session)
                assert (await box.stats()).total == 0
            (message,) = await box.receive()
            async with await psycopg.AsyncConnection.connect(url) as connection:
                assert await message.acknowledge(connection=connection, strict=True)
            assert (await box.stats()).total == 0
        await engine.dispose()

    asyncio.run(main())


def test_R140_a_group_needs_read_committed(url: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box, psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(InvalidParameterError, match="READ COMMITTED"):
            box.send("a", group="g", connection=connection)
        connection.rollback()
        box.send("a", connection=connection)  # without a group any level will do
        connection.commit()
        assert box.stats().ready == 1


@pytest.mark.parametrize("wrong", [7, "connection", object()])
def test_R140_something_else_than_a_connection_is_refused(url: str, wrong: object) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        with pytest.raises(InvalidParameterError, match="connection"):
            box.send("a", connection=wrong)
        assert box.stats().total == 0
