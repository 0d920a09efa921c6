"""An outbox: a message for a mailbox elsewhere, written in the transaction of its sender.

    with psycopg.connect(...) as connection:
        connection.execute("INSERT INTO orders ...")
        Outbox(connection, "http://broker:9324/orders", Order).send(order)

If the transaction commits, a relay (`pillarbox outbox relay`) sends the message; otherwise it is
never sent. A relay that dies between sending and deleting sends again with the same deduplication
id, so that the mailbox drops the duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar, Unpack

import psycopg

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.call import Call
from pillarbox.mailbox.postgres.connection import execute
from pillarbox.mailbox.postgres.errors import PostgresAttempts
from pillarbox.mailbox.postgres.transaction import psycopg_connection
from pillarbox.mailbox.postgres.verbs import PostgresVerbs
from pillarbox.mailbox.protocol import BatchOptions, SendOptions
from pillarbox.mailbox.runner import Verb, run_async, run_awaiting, run_blocking, run_sync
from pillarbox.mailbox.url import opener_of
from pillarbox.mailbox.verbs import Outgoing

T = TypeVar("T")

_PUT = "SELECT * FROM pillarbox.put_outbox(%s, %b::bytea[], %s::bytea, %s::int, %s::bigint, %s, %s)"


class _OutboxVerbs(PostgresVerbs[T], Generic[T]):
    """Verbs that validate a send as usual, and write the messages to the outbox."""

    def _send(self, sent: Outgoing) -> Verb[list[str]]:
        if not sent.bodies:
            return []
        head = wire.packed(sent.attributes) if sent.attributes else None
        options = str(sent.priority), wire.microseconds(sent.delay)
        names = sent.group, sent.deduplication_id
        parameters = self.name, sent.bodies, head, *options, *names
        rows = yield Call(self.name, _PUT, parameters, connection=self.connection)
        return [row[0] for row in rows]


def _verbs(connection: Any, url: str, body_type: Any, asynchronous: bool) -> _OutboxVerbs[Any]:
    opener_of(limits.text("url", url))  # raises if it is not the URL of a mailbox
    verbs: _OutboxVerbs[Any] = _OutboxVerbs(url, "", codec_for(body_type), limits.BODY_BYTES_MAX)
    verbs.connection = psycopg_connection(connection, asynchronous=asynchronous)
    return verbs


class Outbox(Generic[T]):
    """Sends messages to the mailbox at `url` when the transaction of `connection` commits."""

    def __init__(self, connection: Any, url: str, body_type: type[T] | Any = Any) -> None:
        self._verbs: _OutboxVerbs[T] = _verbs(connection, url, body_type, asynchronous=False)

    def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Write a message to the outbox; return the deduplication id it will be sent with."""
        return run_sync(_do, self._verbs.send((body,), **options))[0]

    def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Write messages to the outbox, in order; return the deduplication id of each."""
        return run_sync(_do, self._verbs.send(list(bodies), **options))


class AsyncOutbox(Generic[T]):
    """`Outbox` over an asyncio connection."""

    def __init__(self, connection: Any, url: str, body_type: type[T] | Any = Any) -> None:
        self._verbs: _OutboxVerbs[T] = _verbs(connection, url, body_type, asynchronous=True)

    async def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Write a message to the outbox; return the deduplication id it will be sent with."""
        return (await run_async(_do_async, self._verbs.send((body,), **options)))[0]

    async def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Write messages to the outbox, in order; return the deduplication id of each."""
        return await run_async(_do_async, self._verbs.send(list(bodies), **options))


def _put(call: Call) -> Verb[list[Any]]:
    try:
        return (yield from execute(call.connection, call))
    except psycopg.Error as error:
        PostgresAttempts(call, 0).after(error)
        raise


def _do(call: Call) -> list[Any]:
    return run_blocking(_put(call))


async def _do_async(call: Call) -> list[Any]:
    return await run_awaiting(_put(call))
