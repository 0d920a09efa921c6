"""Errors of Redis: retry a call, and when, or which error to raise.

A call that certainly did not take effect is retried. One whose response was lost is first marked
as doubtful: a script recognises a repeated send, and a verb that then returns False raises
`UnknownOutcomeError`.

UnknownOutcomeError
└── NotReplicatedError     it was done, but too few replicas have confirmed it
"""

from __future__ import annotations

import time

from redis import exceptions as e

from pillarbox.core.errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.runner import Attempts

# Temporary refusals: the call did nothing, and this or another server will accept it later.
_NOT_YET = (
    e.BusyLoadingError,
    e.ClusterDownError,
    e.MaxConnectionsError,
    e.ReadOnlyError,
    e.TryAgainError,
)
_NOT_YET_CODES = ("UNBLOCKED", "NOREPLICAS", "BUSY", "LOADING", "MASTERDOWN", "CLUSTERDOWN")
_HOPELESS = (e.AuthenticationError, e.AuthorizationError, e.NoPermissionError)
_DISTRUST = "CERTIFICATE_VERIFY_FAILED"  # as in OpenSSL's message
_LOST = (e.ConnectionError, e.TimeoutError, OSError)


class NotReplicatedError(UnknownOutcomeError):
    """The master stored the message, but too few replicas confirmed it in time."""


class RefusedError(MailboxError):
    """Redis returned an error that a retry can't fix; `code` is its first word."""

    def __init__(self, queue: str, text: str) -> None:
        super().__init__(
            f"mailbox {queue!r}: Redis refused it ({text}): check that nothing else writes to its "
            "keys, and that the server is Redis 7 or newer"
        )
        self.queue = queue
        self.text = text
        self.code = text.partition(" ")[0]

    def __reduce__(self) -> tuple[type[RefusedError], tuple[str, str]]:
        return type(self), (self.queue, self.text)


class RedisAttempts(Attempts):
    """The attempts of one call."""

    server = "Redis"
    lost = False  # the last error suggests that the slot has moved

    def after(self, error: Exception, sent: bool) -> float:
        """Return the seconds before the next attempt; raise if there is none."""
        self.lost = False
        if isinstance(error, e.AskError):  # also MOVED: it contains the address
            return 0 if time.monotonic() < self._until else self.give_up(error)
        code = str(error).partition(" ")[0]
        if not isinstance(error, _NOT_YET) and code not in _NOT_YET_CODES:
            hopeless = isinstance(error, _HOPELESS) or _DISTRUST in str(error)
            if hopeless or not isinstance(error, _LOST):
                raise self._refusal(error) from error
            self._call.doubtful |= sent
        self.lost = not isinstance(error, e.TryAgainError)
        return self.pause(error)

    def _refusal(self, error: Exception) -> MailboxError:
        queue = self._call.queue
        text = str(error)
        if isinstance(error, e.OutOfMemoryError) or text.startswith(("OOM", "command not allowed")):
            return MailboxFullError(
                f"mailbox {queue!r}: Redis has reached its maxmemory ({error}): receive and "
                "acknowledge some, or give it more memory"
            )
        if text.startswith("MISCONF"):
            return MailboxStorageError(
                f"mailbox {queue!r}: Redis refuses writes because it can't save to its disk "
                f"({error}): free some disk space, or see its log"
            )
        if isinstance(error, _HOPELESS):
            return MailboxConnectionError(
                f"mailbox {queue!r}: Redis refused our credentials ({error}): check the user and "
                "the password"
            )
        if _DISTRUST in text:
            return MailboxConnectionError(
                f"mailbox {queue!r}: the server's certificate is not trusted ({error}): give "
                "its certificate authority in the URL, with ?ssl_ca_certs=FILE"
            )
        return RefusedError(queue, text)
