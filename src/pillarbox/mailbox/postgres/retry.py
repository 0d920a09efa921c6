"""What to do after an error of PostgreSQL: try again, and when, or which error to raise.

A statement that surely was not done is tried again without a second thought. One whose answer was
lost is repeated only if that is harmless, and is marked as doubtful.
"""

from __future__ import annotations

import random
import time

import psycopg

from pillarbox.core.errors import MailboxConnectionError, UnknownOutcomeError
from pillarbox.mailbox.postgres import errors
from pillarbox.mailbox.postgres.call import Call

_PAUSE_SECONDS = 0.01  # before the second try; then doubled, and less by chance
_PAUSE_SECONDS_MAX = 0.5


class Attempts:
    """The tries of one call."""

    def __init__(self, call: Call, seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._pause = _PAUSE_SECONDS

    def after(self, error: psycopg.Error) -> float:
        """How long to wait before the next try; raises if there is none."""
        call = self._call
        if call.connection is not None:  # its owner must know, and roll back
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
                self._give_up(error)
        if time.monotonic() >= self._until:
            self._give_up(error)
        pause, self._pause = self._pause, min(self._pause * 2, _PAUSE_SECONDS_MAX)
        return pause * random.uniform(0.5, 1)

    def _give_up(self, error: psycopg.Error) -> None:
        queue, text = self._call.queue, str(error).strip()
        if self._call.doubtful:
            raise UnknownOutcomeError(
                f"mailbox {queue!r}: the connection to PostgreSQL was lost before it answered "
                f"({text}); what was asked may have been done or not: look before you repeat it, "
                "or send with a deduplication_id"
            ) from error
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            raise MailboxConnectionError(
                f"mailbox {queue!r}: this PostgreSQL server takes no writes ({text}), for "
                f"{self._seconds:g} seconds now: name the primary in the URL, or all servers with "
                "target_session_attrs=read-write"
            ) from error
        raise MailboxConnectionError(
            f"mailbox {queue!r}: PostgreSQL can't be reached, for {self._seconds:g} seconds now "
            f"({text}); nothing was changed: check that the server is running, then try again"
        ) from error
