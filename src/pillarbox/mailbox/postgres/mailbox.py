"""`PostgresMailbox` and `AsyncPostgresMailbox`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar, Unpack, overload

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.mailbox.async_remote import AsyncRemoteMailbox
from pillarbox.mailbox.message import AsyncMessage, Message
from pillarbox.mailbox.postgres.async_connection import AsyncPostgresConnection
from pillarbox.mailbox.postgres.connection import PostgresConnection
from pillarbox.mailbox.postgres.message import AsyncPostgresMessage, PostgresMessage
from pillarbox.mailbox.postgres.options import CheckedOptions, PostgresOptions
from pillarbox.mailbox.postgres.transaction import psycopg_connection
from pillarbox.mailbox.postgres.verbs import PostgresVerbs
from pillarbox.mailbox.protocol import SpecialForm
from pillarbox.mailbox.remote import RemoteMailbox

T = TypeVar("T")


class PostgresMailbox(RemoteMailbox[T], Generic[T]):
    """A mailbox in a PostgreSQL database, safe from any thread.

        orders = PostgresMailbox("orders", Order, url="postgresql://localhost/shop")

    Mailboxes of the same name in the same database share one queue. Options: `PostgresOptions`.
    """

    _kind = PostgresMessage
    _verbs: PostgresVerbs[T]
    _connection: PostgresConnection

    @overload
    def __init__(
        self: PostgresMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[PostgresOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, body_type: type[T], **options: Unpack[PostgresOptions]
    ) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[PostgresOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[PostgresOptions]) -> None:
        checked = CheckedOptions(options)
        self._start(_verbs(name, body_type, checked), PostgresConnection(checked.database))

    def send(
        self,
        body: T,
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
        connection: Any = None,
    ) -> str:
        """Send a message and return its unique id.

        With `connection` (see `transaction`) it is sent if and when its transaction commits.
        """
        options = delay_seconds, priority, attributes, reply_to, group, deduplication_id
        return self._run(self._in(connection).send((body,), *options))[0]

    def send_many(
        self,
        bodies: Iterable[T],
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        connection: Any = None,
    ) -> list[str]:
        """Send all of them, or none, in one step; with `connection` in its transaction."""
        options = delay_seconds, priority, attributes, reply_to, group
        return self._run(self._in(connection).send(list(bodies), *options))

    def acknowledge_many(
        self, messages: Iterable[Message[T]], *, connection: Any = None
    ) -> list[bool]:
        """Delete these in one step; with `connection` if and when its transaction commits."""
        deliveries = self._deliveries(messages)
        return self._run(self._in(connection).acknowledge(deliveries))

    def _in(self, connection: Any) -> PostgresVerbs[T]:
        if connection is None:
            return self._verbs
        return self._verbs.within(psycopg_connection(connection, asynchronous=False))


class AsyncPostgresMailbox(AsyncRemoteMailbox[T], Generic[T]):
    """`PostgresMailbox` for asyncio: the same arguments, and verbs to await."""

    _kind = AsyncPostgresMessage
    _verbs: PostgresVerbs[T]

    @overload
    def __init__(
        self: AsyncPostgresMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[PostgresOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, body_type: type[T], **options: Unpack[PostgresOptions]
    ) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[PostgresOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[PostgresOptions]) -> None:
        checked = CheckedOptions(options)
        self._start(_verbs(name, body_type, checked), AsyncPostgresConnection(checked.database))

    async def send(
        self,
        body: T,
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
        connection: Any = None,
    ) -> str:
        """Send a message and return its unique id.

        With `connection` (see `transaction`) it is sent if and when its transaction commits.
        """
        options = delay_seconds, priority, attributes, reply_to, group, deduplication_id
        return (await self._run(self._in(connection).send((body,), *options)))[0]

    async def send_many(
        self,
        bodies: Iterable[T],
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        connection: Any = None,
    ) -> list[str]:
        """Send all of them, or none, in one step; with `connection` in its transaction."""
        options = delay_seconds, priority, attributes, reply_to, group
        return await self._run(self._in(connection).send(list(bodies), *options))

    async def acknowledge_many(
        self, messages: Iterable[AsyncMessage[T]], *, connection: Any = None
    ) -> list[bool]:
        """Delete these in one step; with `connection` if and when its transaction commits."""
        deliveries = self._deliveries(messages)
        return await self._run(self._in(connection).acknowledge(deliveries))

    def _in(self, connection: Any) -> PostgresVerbs[T]:
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
