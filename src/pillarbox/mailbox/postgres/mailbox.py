"""`PostgresMailbox` and `AsyncPostgresMailbox`: queues in a database, with or without a pooler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Unpack

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.mailbox.abstract import AbstractAsyncMailbox, AbstractMailbox
from pillarbox.mailbox.message import AsyncMessage, Message
from pillarbox.mailbox.postgres.connection import AsyncPostgresConnection, PostgresConnection
from pillarbox.mailbox.postgres.options import CheckedOptions, PostgresOptions
from pillarbox.mailbox.postgres.transaction import psycopg_connection
from pillarbox.mailbox.postgres.verbs import PostgresVerbs
from pillarbox.mailbox.protocol import ANY, B, BatchOptions, BodyType, SendOptions


class PostgresMessage(Message[B], Generic[B], frozen=True, eq=False, gc=False):
    """`Message`, whose `acknowledge` may take part in a transaction."""

    def acknowledge(self, *, strict: bool = False, connection: Any = None) -> bool:
        """Delete the message: the work is done.

        With `connection`, delete it when its transaction commits: together with what the work
        wrote, or not at all. Then use `strict=True`, so that an expired lease raises and the
        transaction is rolled back.
        """
        verbs = self._mailbox._in(connection)
        return self._settle(verbs.acknowledge((self._delivery,)), strict, "acknowledge")


class AsyncPostgresMessage(AsyncMessage[B], Generic[B], frozen=True, eq=False, gc=False):
    """`AsyncMessage`, whose `acknowledge` may take part in a transaction."""

    async def acknowledge(self, *, strict: bool = False, connection: Any = None) -> bool:
        """Delete the message: the work is done; with `connection`, as part of its transaction."""
        verbs = self._mailbox._in(connection)
        return await self._settle(verbs.acknowledge((self._delivery,)), strict, "acknowledge")


class PostgresMailbox(AbstractMailbox[B], Generic[B]):
    """A mailbox in a PostgreSQL database. Thread-safe.

        orders = PostgresMailbox("orders", Order, url="postgresql://localhost/shop")

    Mailboxes of the same name in the same database share one queue. Options: `PostgresOptions`.
    """

    _kind = PostgresMessage
    _verbs: PostgresVerbs[B]
    _connection: PostgresConnection

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[PostgresOptions]
    ) -> None:
        checked = CheckedOptions(options)
        self._start(_verbs(name, body_type, checked), PostgresConnection(checked.database))

    def send(self, body: B, *, connection: Any = None, **options: Unpack[SendOptions]) -> str:
        """Send a message and return its unique id.

        With `connection` (see `transaction`) it is sent when its transaction commits.
        """
        return self._run(self._in(connection).send((body,), **options))[0]

    def send_many(
        self, bodies: Iterable[B], *, connection: Any = None, **options: Unpack[BatchOptions]
    ) -> list[str]:
        """Send all messages or none; with `connection`, in its transaction."""
        return self._run(self._in(connection).send(list(bodies), **options))

    def acknowledge_many(
        self, messages: Iterable[Message[B]], *, connection: Any = None
    ) -> list[bool]:
        """Delete these messages in one step; with `connection`, when its transaction commits."""
        return self._run(self._in(connection).acknowledge(self._deliveries(messages)))

    def _in(self, connection: Any) -> PostgresVerbs[B]:
        if connection is None:
            return self._verbs
        return self._verbs.within(psycopg_connection(connection, asynchronous=False))


class AsyncPostgresMailbox(AbstractAsyncMailbox[B], Generic[B]):
    """`PostgresMailbox` for asyncio: the same arguments and methods, as coroutines."""

    _kind = AsyncPostgresMessage
    _verbs: PostgresVerbs[B]

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[PostgresOptions]
    ) -> None:
        checked = CheckedOptions(options)
        self._connect(_verbs(name, body_type, checked), AsyncPostgresConnection(checked.database))

    async def send(self, body: B, *, connection: Any = None, **options: Unpack[SendOptions]) -> str:
        """Send a message and return its unique id; with `connection`, in its transaction."""
        return (await self._run(self._in(connection).send((body,), **options)))[0]

    async def send_many(
        self, bodies: Iterable[B], *, connection: Any = None, **options: Unpack[BatchOptions]
    ) -> list[str]:
        """Send all messages or none; with `connection`, in its transaction."""
        return await self._run(self._in(connection).send(list(bodies), **options))

    async def acknowledge_many(
        self, messages: Iterable[AsyncMessage[B]], *, connection: Any = None
    ) -> list[bool]:
        """Delete these messages in one step; with `connection`, when its transaction commits."""
        return await self._run(self._in(connection).acknowledge(self._deliveries(messages)))

    def _in(self, connection: Any) -> PostgresVerbs[B]:
        if connection is None:
            return self._verbs
        return self._verbs.within(psycopg_connection(connection, asynchronous=True))


def _verbs(name: str, body_type: Any, options: CheckedOptions) -> PostgresVerbs[Any]:
    limits.queue_name(name)
    verbs: PostgresVerbs[Any] = PostgresVerbs(
        name, options.database.conninfo, codec_for(body_type), options.max_body_bytes
    )
    verbs.wanted = options.settings
    return verbs
