"""Connections for threads: one round trip for each call, and another try after an error.

A thread takes a connection for the time of a call, so calls of many threads never wait for one
another.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from pillarbox.mailbox.postgres.call import Call, Enter, Initialise, Wait
from pillarbox.mailbox.postgres.listener import POLL_SECONDS, Listener, Waiter, listener_for
from pillarbox.mailbox.postgres.options import WHO_ANSWERS, Database
from pillarbox.mailbox.postgres.retry import Attempts
from pillarbox.mailbox.postgres.schema import initialise
from pillarbox.mailbox.runner import Connection


class PostgresConnection(Connection):
    """A pool of connections to one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._idle: list[Any] = []
        self._pid = os.getpid()
        self._listener: Listener | None = None
        self._closed = False

    def do(self, request: Any) -> Any:
        if type(request) is Wait:
            return self._wait(request)
        if type(request) is Initialise:
            return initialise(self._database.conninfo)
        call = request if type(request) is Call else Call(request.queue, "")
        attempts: Attempts | None = None
        while True:
            sent = [False]
            try:
                if type(request) is Enter:
                    return self.listener().enter(request.queue_id)
                return self._once(call, sent)
            except psycopg.Error as error:
                attempts = attempts or Attempts(call, self._database.retry_seconds)
                pause = attempts.after(error, sent[0])
            time.sleep(pause)

    def wake(self, verbs: Any) -> None:
        if self._listener is not None and verbs.queue_id is not None:
            self._listener.wake(verbs.queue_id, stopped=True)

    def close(self) -> None:
        self._closed = True
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.release()
        while self._idle:
            self._idle.pop().close()

    def listener(self) -> Listener:
        self._forget_if_forked()
        if self._listener is None:
            self._listener = listener_for(self._database.conninfo, self._database.pooler)
        return self._listener

    def _once(self, call: Call, sent: list[bool]) -> list[Any]:
        if call.connection is not None:
            return execute(call.connection, call)
        connection = self._take()
        try:
            sent[0] = True
            rows = execute(connection, call)
        except BaseException:
            if connection.closed or connection.pgconn.transaction_status != 0:
                connection.close()
            else:
                self._put_back(connection)
            raise
        self._put_back(connection)
        return rows

    def _take(self) -> Any:
        self._forget_if_forked()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._connect()
            if not connection.closed and not has_news(connection):
                return connection
            connection.close()

    def _connect(self) -> Any:
        connection = psycopg.connect(
            self._database.conninfo,
            autocommit=True,
            prepare_threshold=self._database.prepare_threshold,
        )
        try:
            if self._database.needs_check(connection):
                self._database.check(connection, connection.execute(WHO_ANSWERS).fetchone())
        except BaseException:
            connection.close()
            raise
        return connection

    def _put_back(self, connection: Any) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def _forget_if_forked(self) -> None:
        if self._pid != os.getpid():  # those are the parent's
            self._pid = os.getpid()
            self._idle = []
            self._listener = None

    def _wait(self, wait: Wait) -> None:
        event = threading.Event()
        waiter = Waiter(event.set, wait.stop, wait.ticket)
        if wait.position is None:
            event.wait(min(wait.seconds, POLL_SECONDS, wait.due_seconds or POLL_SECONDS))
            return
        listener = self.listener()
        if not listener.join(wait.queue_id, wait.position, waiter, wait.due_seconds):
            return
        heard = False
        try:
            if not wait.stop():
                event.wait(wait.seconds)
            heard = not wait.stop()
        finally:
            listener.leave(wait.queue_id, waiter, heard=heard)


def execute(connection: Any, call: Call) -> list[Any]:
    # Not `connection.cursor()`: one of the caller's may make other cursors, and other rows.
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(call.statement, call.parameters, binary=True)
        rows: list[Any] = cursor.fetchall()
        return rows


def has_news(connection: Any) -> bool:
    """Whether the server wrote to an idle connection: it says goodbye, or is gone."""
    return bool(select.select([connection.fileno()], [], [], 0)[0])
