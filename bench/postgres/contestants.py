"""Everyone in the races: Pillarbox, and its peers in PostgreSQL, each in a database of its own.

They share one server, with the durability that a server has by default. A peer is driven through
its own public calls; pgmq by its SQL functions, without a client library on top.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import procrastinate
import psycopg
from pgmq.install import get_embedded_install_sql
from pgqueuer.db import PsycopgDriver
from pgqueuer.queries import EntrypointExecutionParameter, Queries
from procrastinate.jobs import Status

from bench.harness import UnavailableError
from bench.mailboxes import BODY, QUEUE, Cycle, mailbox_cycle
from bench.postgres import dramatiq_pg
from pillarbox.mailbox.postgres import PostgresMailbox
from pillarbox.mailbox.postgres.options import parse_url
from pillarbox.testing.postgres import PostgresServer, new_server

Opened = AbstractContextManager[Cycle]


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    prepare: Callable[[str], None]  # makes a database ready
    client: Callable[[str], Opened]
    lacks: str = ""


@functools.cache
def server() -> PostgresServer:
    """One for all: only one of them is at work at a time."""
    try:
        return new_server()
    except FileNotFoundError as error:
        raise UnavailableError(str(error)) from error


def database(contestant: Contestant) -> str:
    """A new database that is ready for this one."""
    url = server().database()
    contestant.prepare(url)
    return url


def _nothing(url: str) -> None:
    """Made ready by the first client."""


@contextmanager
def _pillarbox(url: str) -> Iterator[Cycle]:
    with PostgresMailbox(QUEUE, str, url=url) as box:
        yield mailbox_cycle(box, 5)


def _install_pgmq(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(get_embedded_install_sql())
        connection.execute("SELECT pgmq.create(%s)", (QUEUE,))


@contextmanager
def _pgmq(url: str) -> Iterator[Cycle]:
    body = json.dumps({"body": BODY})
    with psycopg.connect(url, autocommit=True, prepare_threshold=2) as connection:

        def ask(statement: str, *parameters: Any) -> list[Any]:
            return connection.execute(statement, parameters).fetchall()

        def cycle(count: int) -> None:
            if count == 1:
                ask("SELECT * FROM pgmq.send(%s, %s::jsonb)", QUEUE, body)
                found: list[Any] = []
                while not found:  # another client may have been quicker
                    found = ask("SELECT * FROM pgmq.read(%s, 30, 1)", QUEUE)
                ask("SELECT pgmq.delete(%s, %s::bigint)", QUEUE, found[0][0])
                return
            ask("SELECT * FROM pgmq.send_batch(%s, %s::jsonb[])", QUEUE, [body] * count)
            found = ask("SELECT * FROM pgmq.read(%s, 30, %s)", QUEUE, count)
            assert len(found) == count
            ask("SELECT * FROM pgmq.delete(%s, %s::bigint[])", QUEUE, [row[0] for row in found])

        yield cycle


def _install_pgqueuer(url: str) -> None:
    async def install() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await Queries(PsycopgDriver(connection)).install()

    asyncio.run(install())


@contextmanager
def _pgqueuer(url: str) -> Iterator[Cycle]:
    body, manager = BODY.encode(), uuid4()
    entrypoints = {QUEUE: EntrypointExecutionParameter(concurrency_limit=0)}
    with asyncio.Runner() as runner:
        connection = runner.run(psycopg.AsyncConnection.connect(url, autocommit=True))
        queries = Queries(PsycopgDriver(connection))

        async def cycle(count: int) -> None:
            await queries.enqueue([QUEUE] * count, [body] * count, [0] * count)
            left = count
            while left:
                jobs = await queries.dequeue(left, entrypoints, manager, None, timedelta(30))
                if jobs:
                    await queries.log_jobs([(job, "successful", None) for job in jobs])
                left -= len(jobs)

        yield lambda count: runner.run(cycle(count))
        runner.run(connection.close())


def _install_procrastinate(url: str) -> None:
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
    with app.open():
        app.schema_manager.apply_schema()


@contextmanager
def _procrastinate(url: str) -> Iterator[Cycle]:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=1)
    app = procrastinate.App(connector=connector)
    task = app.configure_task("work", queue=QUEUE)
    with asyncio.Runner() as runner:
        runner.run(connector.open_async())
        worker = runner.run(app.job_manager.register_worker())

        async def cycle(count: int) -> None:
            if count == 1:
                await task.defer_async(body=BODY)
            else:
                await task.batch_defer_async(*({"body": BODY} for _ in range(count)))
            done = 0
            while done < count:
                job = await app.job_manager.fetch_job([QUEUE], worker)
                if job is not None:
                    await app.job_manager.finish_job(job, Status.SUCCEEDED, delete_job=True)
                    done += 1

        yield lambda count: runner.run(cycle(count))
        runner.run(connector.close_async())


PILLARBOX = Contestant("Pillarbox", _nothing, _pillarbox)
PGMQ = Contestant(
    "pgmq (bare SQL)", _install_pgmq, _pgmq, "dead letters, priorities, groups, deduplication"
)
PEERS = (
    Contestant("pgqueuer", _install_pgqueuer, _pgqueuer, "delivery count, groups"),
    Contestant(
        "procrastinate", _install_procrastinate, _procrastinate, "lease, batches of receives"
    ),
    Contestant("dramatiq-pg", dramatiq_pg.prepare, dramatiq_pg.client, "lease, batches"),
)


def conninfo(url: str) -> str:
    """What libpq is told of a database."""
    return parse_url(url)[0]
