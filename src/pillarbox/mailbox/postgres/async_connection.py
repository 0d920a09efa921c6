"""Connections for asyncio: what `connection` does for threads, with an await at each step.

A cancelled task tears off no call: it goes on by itself to its end, and what it was given then
is handed to `undo`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.postgres.call import Call, Enter, Initialise, Wait
from pillarbox.mailbox.postgres.connection import has_news
from pillarbox.mailbox.postgres.listener import POLL_SECONDS, Listener, Waiter, listener_for
from pillarbox.mailbox.postgres.options import WHO_ANSWERS, Database
from pillarbox.mailbox.postgres.retry import Attempts
from pillarbox.mailbox.postgres.schema import initialise
from pillarbox.mailbox.runner import AsyncConnection, run_async


class AsyncPostgresConnection(AsyncConnection):
    """A pool of connections to one database, for one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._idle: list[Any] = []
        self._listener: Listener | None = None
        self._orphans: set[asyncio.Task[Any]] = set()  # calls whose caller was cancelled
        self._closed = False

    async def do(self, request: Any) -> Any:
        if self._moved():
            self._idle = []
        if type(request) is Wait:
            return await self._wait(request)
        if type(request) is Initialise:
            return await asyncio.to_thread(initialise, self._database.conninfo)
        if type(request) is Enter:
            return await self._enter(request)
        return await (self._call(request) if request.undo is None else self._sheltered(request))

    async def wake(self, verbs: Any) -> None:
        if self._listener is not None and verbs.queue_id is not None:
            self._listener.wake(verbs.queue_id, stopped=True)

    async def close(self) -> None:
        self._closed = True
        if self._orphans:
            await asyncio.gather(*self._orphans, return_exceptions=True)
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.release()
        while self._idle:
            await self._idle.pop().close()

    async def _sheltered(self, call: Call) -> Any:
        task = asyncio.ensure_future(self._call(call))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            orphan = asyncio.ensure_future(self._make_good(task, call))
            self._orphans.add(orphan)
            orphan.add_done_callback(self._orphans.discard)
            raise

    async def _make_good(self, task: asyncio.Future[Any], call: Call) -> None:
        assert call.undo is not None
        rows: Any = (await asyncio.gather(task, return_exceptions=True))[0]
        try:
            undo = call.undo(None if isinstance(rows, BaseException) else rows)
            await run_async(self._call, undo)
        except MailboxError:  # its lease will run out
            return

    async def _call(self, call: Call) -> list[Any]:
        attempts: Attempts | None = None
        while True:
            sent = [False]
            try:
                return await self._once(call, sent)
            except psycopg.Error as error:
                attempts = attempts or Attempts(call, self._database.retry_seconds)
                pause = attempts.after(error, sent[0])
            await asyncio.sleep(pause)

    async def _once(self, call: Call, sent: list[bool]) -> list[Any]:
        if call.connection is not None:
            return await execute(call.connection, call)
        connection = await self._take()
        try:
            sent[0] = True
            rows = await execute(connection, call)
        except BaseException:
            if connection.closed or connection.pgconn.transaction_status != 0:
                await connection.close()
            else:
                await self._put_back(connection)
            raise
        await self._put_back(connection)
        return rows

    async def _take(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not has_news(connection):
                return connection
            await connection.close()
        connection = await psycopg.AsyncConnection.connect(
            self._database.conninfo,
            autocommit=True,
            prepare_threshold=self._database.prepare_threshold,
        )
        try:
            if self._database.needs_check(connection):
                cursor = await connection.execute(WHO_ANSWERS)
                self._database.check(connection, await cursor.fetchone())
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _put_back(self, connection: Any) -> None:
        if self._closed:
            await connection.close()
        else:
            self._idle.append(connection)

    async def _enter(self, enter: Enter) -> int | None:
        if self._listener is None:
            self._listener = listener_for(self._database.conninfo, self._database.pooler)
        listener = self._listener
        position = listener.position(enter.queue_id)
        if position is not None:
            return position
        attempts: Attempts | None = None
        while True:
            try:
                return await asyncio.to_thread(listener.enter, enter.queue_id)
            except psycopg.Error as error:
                call = Call(enter.queue, "")
                attempts = attempts or Attempts(call, self._database.retry_seconds)
                pause = attempts.after(error, False)
            await asyncio.sleep(pause)

    async def _wait(self, wait: Wait) -> None:
        event = asyncio.Event()
        loop = asyncio.get_running_loop()
        waiter = Waiter(lambda: _in_loop(loop, event.set), wait.stop, wait.ticket)
        seconds = wait.seconds
        if wait.position is None:
            await asyncio.sleep(min(seconds, POLL_SECONDS, wait.due_seconds or POLL_SECONDS))
            return
        listener = self._listener
        if listener is None or not listener.join(
            wait.queue_id, wait.position, waiter, wait.due_seconds
        ):
            return
        heard = False
        try:
            if not wait.stop():
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), seconds)
            heard = not wait.stop()
        finally:
            listener.leave(wait.queue_id, waiter, heard=heard)


def _in_loop(loop: asyncio.AbstractEventLoop, wake: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(wake)


async def execute(connection: Any, call: Call) -> list[Any]:
    # Not `connection.cursor()`: one of the caller's may make other cursors, and other rows.
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(call.statement, call.parameters, binary=True)
        rows: list[Any] = await cursor.fetchall()
        return rows
