"""A pool of connections to one database, for threads and for asyncio.

psycopg's sync and async connections have the same methods. Here each result is yielded, and
`run_blocking` or `run_awaiting` (see `runner`) runs code that is written once. A connection is
taken for the duration of a call, so calls never wait for one another.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from pillarbox.closing import Closing
from pillarbox.mailbox.postgres.call import Call, Initialise, Wait
from pillarbox.mailbox.postgres.errors import PostgresAttempts
from pillarbox.mailbox.postgres.listener import POLL_SECONDS, Listener, Waiter, listener_for
from pillarbox.mailbox.postgres.options import RETRY_SECONDS, Database, parse_url
from pillarbox.mailbox.postgres.schema import initialise
from pillarbox.mailbox.postgres.session import Session
from pillarbox.mailbox.runner import (
    AsyncConnection,
    Connection,
    ShieldedCalls,
    Verb,
    run_awaiting,
    run_blocking,
)


class _Pool:
    """The connections of one mailbox, and of those that share its connection."""

    _sleep: Any  # time.sleep or asyncio.sleep
    _connect: Any  # psycopg's sync or async connect
    _enter: Any  # registers this process at a queue; see `Listener.enter`

    def __init__(self, database: Database) -> None:
        self._database = database
        self._idle: list[Session] = []
        self._listener: Listener | None = None
        self._pid = os.getpid()
        self._closed = False

    def _call(self, call: Call) -> Verb[Any]:
        attempts: PostgresAttempts | None = None
        while True:
            call.sent = False
            try:
                return (yield from self._once(call))
            except psycopg.Error as error:
                attempts = attempts or PostgresAttempts(call, self._database.retry_seconds)
                pause = attempts.after(error)
            yield self._sleep(pause)

    def _once(self, call: Call) -> Verb[Any]:
        if call.connection is not None:
            return (yield from execute(call.connection, call))
        if call.enter is not None:
            return (yield self._enter(call.enter))
        session = self._idle_session() or (yield from self._new_session())
        try:
            call.sent = True
            return (yield from session.ask(call.statement, call.parameters))
        finally:
            if self._closed or session.is_broken():
                session.close()
            else:
                self._idle.append(session)

    def _idle_session(self) -> Session | None:
        if self._pid != os.getpid():
            self._forget()
        while self._idle:
            try:
                session = self._idle.pop()
            except IndexError:  # another thread took the last one
                break
            if session.is_alive():
                return session
            session.close()
        return None

    def _new_session(self) -> Verb[Session]:
        database = self._database
        connection = yield self._connect(database.conninfo, autocommit=True, prepare_threshold=None)
        try:
            yield from database.check(connection)
        except BaseException:
            yield connection.close()
            raise
        return Session(connection, prepares=not database.pooler)

    def _forget(self) -> None:
        """Drop the connections after a fork: they belong to the parent."""
        self._pid = os.getpid()
        self._idle = []
        self._listener = None

    def _listening(self) -> Listener:
        if self._pid != os.getpid():
            self._forget()
        if self._listener is None:
            self._listener = listener_for(self._database.conninfo, self._database.pooler)
        return self._listener

    def _wait(self, wait: Wait, wake: Callable[[], None], sleep: Any) -> Verb[None]:
        """Wait for a notification; `sleep` ends after some seconds, or when `wake` is called."""
        if wait.position is None:
            yield sleep(min(wait.seconds, POLL_SECONDS, wait.due_seconds or POLL_SECONDS))
            return
        listener, waiter = self._listening(), Waiter(wake, wait.stop, wait.ticket)
        if not listener.join(wait.queue_id, wait.position, waiter, wait.due_seconds):
            return
        heard = False
        try:
            if not wait.stop():
                yield sleep(wait.seconds)
            heard = not wait.stop()
        finally:
            listener.leave(wait.queue_id, waiter, heard=heard)

    def _wake(self, queue_id: int | None) -> None:
        if self._listener is not None and queue_id is not None:
            self._listener.wake(queue_id, stopped=True)

    def _close(self) -> Verb[None]:
        self._closed = True
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.release()
        while self._idle:
            self._idle.pop().close()
        yield from ()


class PostgresConnection(_Pool, Connection):
    """A pool of connections for threads."""

    _sleep = staticmethod(time.sleep)
    _connect = staticmethod(psycopg.connect)

    def do(self, request: Any) -> Any:
        if type(request) is Call:
            return run_blocking(self._call(request))
        if type(request) is Initialise:
            return initialise(self._database.conninfo)
        event = threading.Event()
        return run_blocking(self._wait(request, event.set, event.wait))

    def _enter(self, queue_id: int) -> int | None:
        return self._listening().enter(queue_id)

    def wake(self, verbs: Any) -> None:
        self._wake(verbs.queue_id)

    def close(self) -> None:
        run_blocking(self._close())


class PostgresClient(PostgresConnection, Closing):
    """Runs statements in the database of a URL, over its own connection."""

    def __init__(self, url: str) -> None:
        conninfo, self.queue, _ = parse_url(url)
        super().__init__(Database(conninfo, RETRY_SECONDS, pooler=False))

    def ask(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a statement and return its rows."""
        rows: list[Any] = self.do(Call(self.queue or "-", statement, parameters))
        return rows


class AsyncPostgresConnection(ShieldedCalls, _Pool, AsyncConnection):
    """A pool of connections for one event loop."""

    _sleep = staticmethod(asyncio.sleep)
    _connect = staticmethod(psycopg.AsyncConnection.connect)

    async def do(self, request: Any) -> Any:
        if self._moved():
            self._idle = []
        if type(request) is Call:
            return await (self._run(request) if request.undo is None else self._shielded(request))
        if type(request) is Initialise:
            return await asyncio.to_thread(initialise, self._database.conninfo)
        event, loop = asyncio.Event(), asyncio.get_running_loop()

        async def sleep(seconds: float) -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        return await run_awaiting(self._wait(request, wake, sleep))

    async def _enter(self, queue_id: int) -> int | None:
        listener = self._listening()
        position = listener.position(queue_id)
        if position is None:  # it has to register at the server
            position = await asyncio.to_thread(listener.enter, queue_id)
        return position

    async def wake(self, verbs: Any) -> None:
        self._wake(verbs.queue_id)


def execute(connection: Any, call: Call) -> Verb[list[Any]]:
    """Run a statement and return its rows."""
    # Not `connection.cursor()`: the caller's connection may have other cursor and row factories.
    asynchronous = isinstance(connection, psycopg.AsyncConnection)
    kind: Any = psycopg.AsyncCursor if asynchronous else psycopg.Cursor
    cursor = kind(connection, row_factory=tuple_row)
    yield cursor.execute(call.statement, call.parameters, binary=True)
    rows: list[Any] = yield cursor.fetchall()
    return rows
