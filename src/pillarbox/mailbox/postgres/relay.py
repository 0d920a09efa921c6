"""The relay of an outbox: sends its messages, in order, and deletes those that were sent.

For each mailbox one relay works at a time, holding an advisory lock; others stand by. If it is
killed, nothing is lost: messages that were sent but not deleted are sent again with the same
deduplication id. Messages that the mailbox refuses permanently are marked with the error and kept.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import psycopg

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    SerializationError,
)
from pillarbox.extras import MissingExtraError
from pillarbox.logger import logger
from pillarbox.mailbox.answers import REPLY_TO
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.call import Call
from pillarbox.mailbox.postgres.errors import is_hopeless, refused_connection, translated
from pillarbox.mailbox.postgres.listener import POLL_SECONDS, Waiter, listener_for
from pillarbox.mailbox.postgres.options import parse_url
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.url import open_mailbox, without_password
from pillarbox.mailbox.verbs import user_attributes

_BATCH = 100
_LOCK = 1885500422
_RELAYS = 0  # the queue at which relays wait; see outbox.sql
_WAIT_SECONDS = 10.0
# See line.sql: who has sent and not committed yet may have missed that a relay waits.
_ALL_COMMITTED = (
    f"SELECT pg_try_advisory_lock(1885500418, {_RELAYS}) "
    f"AND pg_advisory_unlock(1885500418, {_RELAYS})"
)
_TARGETS = "SELECT DISTINCT url FROM pillarbox.outbox WHERE error IS NULL ORDER BY url"
_ROWS = (
    "SELECT id, body, head, priority, group_name, deduplication_id, "
    "greatest(0, enqueued_at + delay - pillarbox.clock()) FROM pillarbox.outbox "
    "WHERE url = %s AND error IS NULL ORDER BY id LIMIT %s"
)


class UnavailableError(MailboxConnectionError):
    """The database is temporarily unavailable."""


class Relay:
    """Sends the messages in the outbox of one database."""

    def __init__(self, url: str) -> None:
        self._conninfo = parse_url(url)[0]
        self._boxes: dict[str, Mailbox[Any]] = {}
        self.problems: dict[str, str] = {}  # errors of the last pass, by mailbox
        self._all_committed = True  # at the start of the last pass
        self._ended = threading.Event()
        self._woken = threading.Event()

    def run(self) -> None:
        """Send messages until `end` is called; raise if the database refuses permanently."""
        listener = listener_for(self._conninfo)
        try:
            while not self._ended.is_set():
                self._woken.clear()
                position: int | None = None
                with suppress(psycopg.Error):
                    position = listener.enter(_RELAYS)
                if not self._run_once():
                    self._wait(listener, position)
        finally:
            listener.release()
            self.close()

    def end(self) -> None:
        """Make `run` return soon; called from another thread."""
        self._ended.set()
        self._woken.set()

    def run_once(self) -> int:
        """Send the messages in the outbox now; return how many were sent."""
        self.problems.clear()
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                self._all_committed = connection.execute(_ALL_COMMITTED).fetchall()[0][0]
                targets = connection.execute(_TARGETS).fetchall()
                return sum(self._move_all(connection, url) for (url,) in targets)
        except psycopg.Error as error:
            if is_hopeless(error):
                raise refused_connection("outbox", error) from error
            if isinstance(error, psycopg.OperationalError):
                raise UnavailableError(
                    f"PostgreSQL is not available ({str(error).strip()}): check that it is running"
                ) from error
            raise translated(Call("outbox", ""), error) from error

    def _run_once(self) -> int:
        """Send the messages in the outbox; log and return 0 if the database is unavailable."""
        try:
            count = self.run_once()
        except UnavailableError as error:
            logger.warning("outbox relay: PostgreSQL is not available; retrying", error=str(error))
            self._ended.wait(POLL_SECONDS)
            return 0
        if self.problems:
            self._ended.wait(POLL_SECONDS)
        return count

    def close(self) -> None:
        while self._boxes:
            self._boxes.popitem()[1].close()

    def _wait(self, listener: Any, position: int | None) -> None:
        """Wait until there may be more messages; only briefly where notifications may be missed."""
        waiter = Waiter(self._woken.set, self._ended.is_set)
        if position is None:
            self._woken.wait(POLL_SECONDS)
        elif listener.join(_RELAYS, position, waiter, None):
            try:
                self._woken.wait(_WAIT_SECONDS if self._all_committed else POLL_SECONDS)
            finally:
                listener.leave(_RELAYS, waiter, heard=True)

    def _move_all(self, connection: Any, url: str) -> int:
        """Send all messages for one mailbox, unless another relay is doing so."""
        key = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
        if not connection.execute(key, (_LOCK, url)).fetchone()[0]:
            return 0
        count = 0
        try:
            while not self._ended.is_set():
                moved, more = self._move(connection, url)
                count += moved
                if not more:
                    break
        finally:
            if not connection.closed:
                connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", (_LOCK, url))
        return count

    def _move(self, connection: Any, url: str) -> tuple[int, bool]:
        """Send one batch; return how many were sent, and whether to continue."""
        rows = connection.execute(_ROWS, (url, _BATCH)).fetchall()
        sent: list[int] = []
        try:
            for row in rows:
                try:
                    self.send(url, row)
                except (MailboxError, MissingExtraError) as error:
                    if not _is_about_message(error):
                        shown = without_password(url)
                        logger.warning(
                            "outbox relay: the mailbox is not available; retrying",
                            url=shown,
                            error=str(error),
                        )
                        self.problems[shown] = str(error)
                        return len(sent), False
                    self.refuse(connection, row[0], error)
                else:
                    sent.append(row[0])
        finally:
            if sent and not connection.closed:
                self.delete(connection, sent)
        return len(sent), len(rows) == _BATCH

    def send(self, url: str, row: Any) -> None:
        """Send one message to its mailbox."""
        _, body, head, priority, group, deduplication_id, delay = row
        noted, box = wire.attributes_in(head), self._box(url)
        if url.startswith("sqs") and not box.name.endswith(".fifo"):
            deduplication_id = None  # a standard queue of SQS takes none
        box.send(
            body,
            delay_seconds=delay / 1_000_000,
            priority=priority,
            attributes=dict(user_attributes(noted)) or None,
            reply_to=noted.get(REPLY_TO),
            group=group,
            deduplication_id=deduplication_id,
        )

    def delete(self, connection: Any, ids: list[int]) -> None:
        """Delete messages that were sent."""
        connection.execute("DELETE FROM pillarbox.outbox WHERE id = ANY (%s)", (ids,))

    def refuse(self, connection: Any, number: int, error: Exception) -> None:
        """Mark a message that its mailbox will never accept."""
        logger.error("outbox relay: message refused", number=number, error=str(error))
        self.problems[f"message {number}"] = str(error)
        statement = "UPDATE pillarbox.outbox SET error = %s WHERE id = %s"
        connection.execute(statement, (str(error).replace("\0", ""), number))

    def _box(self, url: str) -> Mailbox[Any]:
        if url not in self._boxes:
            self._boxes[url] = open_mailbox(url, bytes)
        return self._boxes[url]


def _is_about_message(error: Exception) -> bool:
    """Return whether the mailbox will never accept this message; else it does not work now."""
    if isinstance(error, InvalidParameterError):
        return error.parameter not in ("name", "url")  # the queue may be created later
    return isinstance(error, SerializationError)
