"""Errors of PostgreSQL: retry a call, and when, or which error to raise.

A statement that certainly did not take effect is retried. One whose response was lost is repeated
only if that is harmless, and marked as doubtful.
"""

from __future__ import annotations

from typing import NoReturn

import psycopg
from psycopg import errors as e

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
)
from pillarbox.mailbox.postgres.call import Call
from pillarbox.mailbox.runner import Attempts

SERVER_VERSION_MIN = 130000

# Temporary refusals: nothing was changed, and a retry, perhaps on another server, may succeed.
_NOT_YET = (
    e.CannotConnectNow,
    e.DeadlockDetected,
    e.ReadOnlySqlTransaction,
    e.SerializationFailure,
    e.TooManyConnections,
)
_REFUSED = (e.InvalidAuthorizationSpecification, e.InvalidPassword)
_NO_SCHEMA = (e.InvalidSchemaName, e.UndefinedFunction, e.UndefinedTable)


class RefusedError(MailboxError):
    """PostgreSQL refused a statement; a retry can't fix it."""


class QueueDeletedError(MailboxError):
    """The queue that a mailbox was opened on has been deleted."""


class SchemaMissingError(MailboxError):
    """The database has no schema `pillarbox`, or one of another version."""


def is_lost(error: psycopg.Error) -> bool:
    """Return whether the connection was lost: the statement may have taken effect."""
    if isinstance(error, (e.AdminShutdown, e.CrashShutdown)):
        return True
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and (
        error.sqlstate is None or error.sqlstate.startswith("08")
    )


def is_hopeless(error: psycopg.Error) -> bool:
    """Return whether reconnecting is pointless, because the server refused our credentials."""
    text = str(error)
    return (
        isinstance(error, (*_REFUSED, e.InvalidCatalogName, e.InsufficientPrivilege))
        or "no password supplied" in text
        or "password authentication failed" in text
        or ('role "' in text and "does not exist" in text)
        or ('database "' in text and "does not exist" in text)
        or "no pg_hba.conf entry" in text
        or "certificate" in text
    )


def refused_connection(queue: str, error: psycopg.Error) -> MailboxError:
    return MailboxConnectionError(
        f"mailbox {queue!r}: PostgreSQL refused the connection ({_text(error)}): check the role, "
        "the password and the database in the URL"
    )


def translated(call: Call, error: psycopg.Error) -> MailboxError:
    """Return the mailbox error for a server error; nothing was changed."""
    queue, text = call.queue, _text(error)
    if error.sqlstate == "PB404":
        return QueueDeletedError(f"mailbox {queue!r}: the queue was deleted; open it again")
    if error.sqlstate == "PB400":
        return InvalidParameterError("connection", text, "in a transaction that is READ COMMITTED")
    if error.sqlstate == "PB409":
        return InvalidParameterError("dead_letters", queue, text)
    if error.sqlstate == "PB413":
        return RefusedError(f"mailbox {queue!r}: {text}: commit more often")
    if error.sqlstate == "PB507":
        held, capacity = int(text), int(error.diag.message_detail or 0)
        return MailboxFullError(
            f"mailbox {queue!r} holds {held:,} of {capacity:,} messages and can't take that many "
            "more: receive and acknowledge some, or raise capacity"
        )
    if isinstance(error, _NO_SCHEMA):
        return SchemaMissingError(
            f"mailbox {queue!r}: the database has no schema of this version of Pillarbox "
            f"({text}): run `pillarbox postgres init URL` as a role that may create it"
        )
    if isinstance(error, e.InsufficientPrivilege):
        return RefusedError(
            f"mailbox {queue!r}: the role may not do this ({text}): run `pillarbox postgres init "
            "URL --grant ROLE` as the owner of the schema"
        )
    if isinstance(error, (e.DiskFull, e.IoError)):
        return MailboxStorageError(
            f"mailbox {queue!r}: PostgreSQL can't write to its disk ({text}): free some space; "
            "nothing was changed"
        )
    if isinstance(error, e.QueryCanceled):
        return RefusedError(
            f"mailbox {queue!r}: the statement was cancelled ({text}); nothing was changed: check "
            "statement_timeout and lock_timeout, then try again"
        )
    return RefusedError(f"mailbox {queue!r}: PostgreSQL refused it ({text}); nothing was changed")


def _text(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip()


class PostgresAttempts(Attempts):
    """The attempts of one call."""

    server = "PostgreSQL"

    def after(self, error: psycopg.Error) -> float:
        """Return the seconds before the next attempt; raise if there is none."""
        call = self._call
        if call.connection is not None:  # the caller's transaction must be rolled back
            if is_lost(error):
                raise MailboxConnectionError(
                    f"mailbox {call.queue!r}: the connection of the transaction was lost "
                    f"({str(error).strip()}); the transaction was rolled back"
                ) from error
            raise translated(call, error) from error
        if not isinstance(error, _NOT_YET):
            if not is_lost(error):
                raise translated(call, error) from error
            if not call.sent and is_hopeless(error):
                raise refused_connection(call.queue, error) from error
            call.doubtful |= call.sent
            if call.sent and not call.repeatable:
                self.give_up(error)
        return self.pause(error)

    def give_up(self, error: Exception) -> NoReturn:
        if isinstance(error, e.ReadOnlySqlTransaction) and not self._call.doubtful:
            raise MailboxConnectionError(
                f"mailbox {self._call.queue!r}: this PostgreSQL server refuses writes (tried for "
                f"{self._seconds:g} seconds: {str(error).strip()}): name the primary in the URL, "
                "or all servers with target_session_attrs=read-write"
            ) from error
        super().give_up(error)
