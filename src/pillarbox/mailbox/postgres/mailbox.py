"""`PostgresMailbox` and `AsyncPostgresMailbox`."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, Unpack, overload

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.mailbox.async_remote import AsyncRemoteMailbox
from pillarbox.mailbox.postgres.async_connection import AsyncPostgresConnection
from pillarbox.mailbox.postgres.connection import PostgresConnection
from pillarbox.mailbox.postgres.options import CheckedOptions, PostgresOptions
from pillarbox.mailbox.postgres.verbs import PostgresVerbs
from pillarbox.mailbox.protocol import SpecialForm
from pillarbox.mailbox.remote import RemoteMailbox

T = TypeVar("T")


class PostgresMailbox(RemoteMailbox[T], Generic[T]):
    """A mailbox in a PostgreSQL database, safe from any thread.

        orders = PostgresMailbox("orders", Order, url="postgresql://localhost/shop")

    Mailboxes of the same name in the same database share one queue. Options: `PostgresOptions`.
    """

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


class AsyncPostgresMailbox(AsyncRemoteMailbox[T], Generic[T]):
    """`PostgresMailbox` for asyncio: the same arguments, and verbs to await."""

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


def _verbs(name: str, body_type: Any, options: CheckedOptions) -> PostgresVerbs[Any]:
    limits.queue_name(name)
    verbs: PostgresVerbs[Any] = PostgresVerbs(
        name, options.database.conninfo, codec_for(body_type), options.max_body_bytes
    )
    verbs.wanted = options.settings
    return verbs
