"""How often a request is tried, and what its failure means; no I/O, the same for every client.

A request whose connection breaks is asked again, with pauses that grow, until patience is
over. The broker knows a repeated request by its channel and number, so nothing is done twice;
if it can't know (it was restarted), that is an error and never a guess.
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
_UNKNOWN = "?"  # an instance that no broker has


class Attempts:
    """One request, from the first try to the last. `body` is what to send next."""

    __slots__ = ("_address", "_asked", "_commands", "_identity", "_number", "_pauses", "_queue",
                 "_started", "_until", "body")  # fmt: skip

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
        self._asked = instance  # whom the first try asks: later tries may meet another
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
        """How long to pause before the next try; raises if this one was the last.

        `began`: the broker may have got the request.
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
            self.body = self._request(left, self._asked or _UNKNOWN)
        return pause

    def _request(self, commands: Sequence[Command], instance: str) -> bytes:
        return encode(Request(self._identity, self._number, instance, commands))  # type: ignore[arg-type]

    def _gave_up(self, error: Exception, began: bool) -> MailboxError:
        why = str(error) or type(error).__name__
        where = f"the broker at {self._address.origin} can't be reached ({why})"
        if began and not all(map(repeatable, self._commands)):
            return UnknownOutcomeError(
                f"{where}, and may or may not have done what it was asked for queue "
                f"{self._queue!r}: check it before you retry, or send with a deduplication_id"
            )
        there = f" in queue {self._queue!r}" if self._queue else ""
        return MailboxConnectionError(
            f"{where}; nothing was changed{there}: check that the broker is running"
        )


def _pauses_seconds() -> Iterator[float]:
    """The first further try comes at once; the pauses before the others grow."""
    yield 0.0
    longest = _PAUSE_SECONDS_MIN
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(2 * longest, _PAUSE_SECONDS_MAX)


def good(answer: Answer, address: Address) -> Answer:
    """This answer, if it is one of the protocol; OSError if it is worth another try."""
    if answer.status == 200:
        return answer
    text = answer.body[:300].decode("utf-8", "replace")
    if answer.status in (408, 429, 502, 503, 504):
        raise ConnectionRefusedError(f"{answer.status}: {text}")
    if answer.status in (401, 403):
        raise AccessDeniedError(
            f"the broker at {address.origin} refuses these credentials ({text}): give a key and "
            "its secret in the URL, http://key:secret@host:port/name"
        )
    if answer.status == 404:
        raise _no_broker(address)
    raise MailboxError(f"the broker at {address.origin} answered {answer.status}: {text}")


def results_of(answer: Answer, address: Address) -> list[Any]:
    """The outcomes in an answer, one for each command; raises if the only one is a failure."""
    try:
        results = decode_results(answer.body)
    except (MsgspecError, ValueError):
        raise _no_broker(address) from None
    if len(results) == 1 and results[0].__class__ is Failed:
        raise error_of(results[0])
    return results


def _no_broker(address: Address) -> MailboxError:
    return MailboxError(f"there is no Pillarbox broker at {address.origin}: check the URL")
