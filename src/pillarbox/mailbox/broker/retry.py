"""Retries of a request and the meaning of its failure; no I/O, shared by all clients.

If the connection breaks, the request is repeated, with growing pauses, for `patience_seconds`. The
broker recognises a repeated request by channel and number, so nothing is done twice. If it can't
tell, because it was restarted, the call raises an error.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import MsgspecError

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.answer import Answer
from pillarbox.mailbox.broker.errors import AccessDeniedError, error_of
from pillarbox.mailbox.broker.wire import (
    REQUEST_BYTES_MAX,
    Command,
    Failed,
    Request,
    decode_results,
    encode,
    repeatable,
    shortened,
)

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
_PAUSE_SECONDS_MIN = 0.02
_PAUSE_SECONDS_MAX = 2.0
_UNKNOWN = "?"  # matches no broker


class Attempts:
    """The attempts of one request. `body` is what to send next."""

    __slots__ = (
        "_address",
        "_commands",
        "_first_instance",
        "_identity",
        "_number",
        "_pauses",
        "_queue",
        "_started",
        "_until",
        "body",
    )  # fmt: skip

    def __init__(
        self,
        address: Address,
        queue: str,
        commands: Sequence[Command],
        identity: bytes,
        number: int,
        instance: str,
    ) -> None:
        self._address = address
        self._queue = queue
        self._commands = commands
        self._identity = identity
        self._number = number
        self._first_instance = instance  # later attempts may reach another broker
        self._started = time.monotonic()
        self._until = 0.0
        self._pauses: Iterator[float] | None = None
        self.body = self._request(commands, "")
        if len(self.body) > REQUEST_BYTES_MAX:
            raise InvalidParameterError(
                "bodies",
                f"{len(self.body):,} bytes",
                f"at most {REQUEST_BYTES_MAX:,} bytes in one batch",
            )

    def after(self, error: Exception, began: bool) -> float:
        """Return the pause before the next attempt in seconds; raise if this was the last one.

        `began`: the broker may have received the request.
        """
        now = time.monotonic()
        if self._pauses is None:
            self._pauses = _pauses_seconds()
            self._until = now + self._address.patience_seconds
        pause = next(self._pauses)
        if now + pause > self._until:
            raise self._gave_up(error, began) from error
        if began:
            left = [shortened(each, now + pause - self._started) for each in self._commands]
            self.body = self._request(left, self._first_instance or _UNKNOWN)
        return pause

    def _request(self, commands: Sequence[Command], instance: str) -> bytes:
        return encode(Request(self._identity, self._number, instance, commands))  # type: ignore[arg-type]

    def _gave_up(self, error: Exception, began: bool) -> MailboxError:
        why = str(error) or type(error).__name__
        where = f"the broker at {self._address.origin} can't be reached ({why})"
        if began and not all(map(repeatable, self._commands)):
            return UnknownOutcomeError(
                f"{where}; the request for queue {self._queue!r} may or may not have taken effect: "
                "check the queue before you retry, or send with a deduplication_id"
            )
        there = f" in queue {self._queue!r}" if self._queue else ""
        return MailboxConnectionError(
            f"{where}; nothing was changed{there}: check that the broker is running"
        )


def _pauses_seconds() -> Iterator[float]:
    """Yield the pauses between attempts: none before the second, then growing ones."""
    yield 0.0
    longest = _PAUSE_SECONDS_MIN
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(2 * longest, _PAUSE_SECONDS_MAX)


def good(answer: Answer, address: Address) -> Answer:
    """Return the response if it is valid; raise OSError if a retry may help."""
    if answer.status == 200:
        return answer
    text = answer.body[:300].decode("utf-8", "replace")
    if answer.status in (408, 429, 502, 503, 504):
        raise ConnectionRefusedError(f"{answer.status}: {text}")
    if answer.status in (401, 403):
        raise AccessDeniedError(
            f"the broker at {address.origin} refused these credentials ({text}): put a key and "
            "its secret in the URL, http://key:secret@host:port/name"
        )
    if answer.status == 404:
        raise _no_broker(address)
    raise MailboxError(f"the broker at {address.origin} returned status {answer.status}: {text}")


def results_of(answer: Answer, address: Address) -> list[Any]:
    """Return the result of each command in a response; raise if the only one failed."""
    try:
        results = decode_results(answer.body)
    except (MsgspecError, ValueError):
        raise _no_broker(address) from None
    if len(results) == 1 and results[0].__class__ is Failed:
        raise error_of(results[0])
    return results


def _no_broker(address: Address) -> MailboxError:
    return MailboxError(f"there is no Pillarbox broker at {address.origin}: check the URL")
