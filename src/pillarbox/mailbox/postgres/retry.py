"""Classifies errors of PostgreSQL: retry a call, and when, or which error to raise.

A statement that certainly did not take effect is retried. One whose response was lost is repeated
only if that is harmless, and marked as doubtful.
"""

from __future__ import annotations

from typing import NoReturn

import psycopg

from pillarbox.core.errors import MailboxConnectionError
from pillarbox.mailbox.postgres import errors
from pillarbox.mailbox.retry import Attempts


class PostgresAttempts(Attempts):
    """The attempts of one call."""

    server = "PostgreSQL"

    def after(self, error: psycopg.Error) -> float:
        """Return the seconds before the next attempt; raise if there is none."""
        call = self._call
        if call.connection is not None:  # the caller's transaction must be rolled back
            if errors.is_lost(error):
                raise MailboxConnectionError(
                    f"mailbox {call.queue!r}: the connection of the transaction was lost "
                    f"({str(error).strip()}); the transaction was rolled back"
                ) from error
            raise errors.translated(call, error) from error
        if not isinstance(error, errors.NOT_YET):
            if not errors.is_lost(error):
                raise errors.translated(call, error) from error
            if not call.sent and errors.is_hopeless(error):
                raise errors.refused_connection(call.queue, error) from error
            call.doubtful |= call.sent
            if call.sent and not call.repeatable:
                self.give_up(error)
        return self.pause(error)

    def give_up(self, error: Exception) -> NoReturn:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) and not self._call.doubtful:
            raise MailboxConnectionError(
                f"mailbox {self._call.queue!r}: this PostgreSQL server refuses writes (tried for "
                f"{self._seconds:g} seconds: {str(error).strip()}): name the primary in the URL, "
                "or all servers with target_session_attrs=read-write"
            ) from error
        super().give_up(error)
