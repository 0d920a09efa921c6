"""The part of channels that threads and asyncio share: everything except the connection.

A channel is a connection and an identity that survives reconnects. Each channel has one request at
a time under way; idle channels are kept while a mailbox uses the broker.

If the connection breaks, the request is repeated, with growing pauses, for `patience_seconds`. The
broker recognises a repeated request by channel and number, so nothing is done twice. If it can't
tell, because it was restarted, the call raises an error.
"""

from __future__ import annotations

import random
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.answer import Answer, good
from pillarbox.mailbox.broker.login import Login
from pillarbox.mailbox.broker.wire import (
    REQUEST_BYTES_MAX,
    Command,
    Request,
    encode,
    repeatable,
    shortened,
)
from pillarbox.mailbox.runner import Verb

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
_PAUSE_SECONDS_MIN = 0.02
_PAUSE_SECONDS_MAX = 2.0
_UNKNOWN = "?"  # matches no broker


class BaseChannel(ABC):
    """The identity of a channel, and the number of its last request."""

    __slots__ = ("address", "began", "hung_up", "identity", "number")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.identity = secrets.token_bytes(16)
        self.number = 0
        self.began = False  # whether the broker may have seen the current attempt
        self.hung_up = False

    def request(self, commands: Sequence[Command], instance: str = "") -> bytes:
        """Encode a request; a repeated one has the broker's `instance` at the first attempt."""
        return encode(Request(self.identity, self.number, instance, list(commands)))

    @abstractmethod
    def close(self) -> None:
        """Close the connection; the next request opens a new one."""


C = TypeVar("C", bound=BaseChannel)


class ChannelPool(Generic[C]):
    """The sync or async channels to one broker."""

    def __init__(self, address: Address, channel_class: type[C]) -> None:
        self.address = address
        self.instance = ""  # last known instance id of the broker
        self.users = 0
        self.idle: list[C] = []
        self.login = Login(address)
        self._channel_class = channel_class

    def take(self) -> C:
        """Return a channel for one request."""
        try:
            channel = self.idle.pop()
        except IndexError:
            channel = self._channel_class(self.address)
        channel.number += 1
        return channel

    def put_back(self, channel: C) -> None:
        if self.users and not channel.hung_up:
            self.idle.append(channel)
        else:
            channel.close()

    def exchange(self, channel: C, queue: str, commands: Sequence[Command]) -> Verb[Answer]:
        """Retry until there is a response; yields requests (head, body) and pauses in seconds."""
        login, started, pauses = self.login, time.monotonic(), _pauses_seconds()
        instance = self.instance or _UNKNOWN  # later attempts may reach another broker
        until: float | None = None
        began = False  # whether the broker may have seen the commands
        body = channel.request(commands)
        if len(body) > REQUEST_BYTES_MAX:
            allowed = f"at most {REQUEST_BYTES_MAX:,} bytes in one batch"
            raise InvalidParameterError("bodies", f"{len(body):,} bytes", allowed)
        while True:
            channel.began = False
            try:
                fresh = login.due
                if fresh:
                    yield from self._log_in(channel)
                answer: Answer = yield login.heads[queue], body
                if not login.refused(answer, fresh):
                    return good(answer, self.address)
                continue
            except OSError as error:
                channel.close()
                began |= channel.began
                now, pause = time.monotonic(), next(pauses)
                if until is None:
                    until = now + self.address.patience_seconds
                if now + pause > until:
                    raise self._gave_up(error, queue, commands, began) from error
            if began:
                left = [shortened(each, now + pause - started) for each in commands]
                body = channel.request(left, instance)
            yield pause

    def _log_in(self, channel: C) -> Verb[None]:
        try:
            self.login.take((yield self.login.request()))
        finally:
            channel.began = False  # the broker has seen no commands, only the request for a token

    def _gave_up(
        self, error: Exception, queue: str, commands: Sequence[Command], began: bool
    ) -> MailboxError:
        """Return the error for the last attempt. `began`: the broker may have got the request."""
        why = str(error) or type(error).__name__
        where = f"the broker at {self.address.origin} can't be reached ({why})"
        if began and not all(map(repeatable, commands)):
            return UnknownOutcomeError(
                f"{where}; the request for queue {queue!r} may or may not have taken effect: "
                "check the queue before you retry, or send with a deduplication_id"
            )
        there = f" in queue {queue!r}" if queue else ""
        return MailboxConnectionError(
            f"{where}; nothing was changed{there}: check that the broker is running"
        )

    def leave(self) -> None:
        """Count a closed mailbox; the last one closes the idle connections."""
        self.users -= 1
        if self.users <= 0:
            close_all(self.idle)


def close_all(idle: list[C]) -> None:
    while idle:
        idle.pop().close()


def _pauses_seconds() -> Iterator[float]:
    """Yield the pauses between attempts: none before the second, then growing ones."""
    yield 0.0
    longest = _PAUSE_SECONDS_MIN
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(2 * longest, _PAUSE_SECONDS_MAX)
