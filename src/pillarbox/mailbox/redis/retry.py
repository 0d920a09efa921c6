"""What an error of Redis means for a call: try again, and when, or which error to raise.

A call that surely did not happen is tried again without a second thought. One whose answer was
lost is marked as doubtful first: a script knows a send that it has seen, and a verb that then
answers False raises `UnknownOutcomeError`.
"""

from __future__ import annotations

import random
import time

from redis import exceptions as e

from pillarbox.core.errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxStorageError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.errors import RefusedError

_PAUSE_SECONDS = 0.01  # before the second try; then doubled, and less by chance
_PAUSE_SECONDS_MAX = 0.5
# The server did not do it and will, or another server will, once it has got over something.
_NOT_YET = (
    e.BusyLoadingError,
    e.ClusterDownError,
    e.MaxConnectionsError,
    e.ReadOnlyError,
    e.TryAgainError,
)
_NOT_YET_CODES = ("UNBLOCKED", "NOREPLICAS", "BUSY", "LOADING", "MASTERDOWN", "CLUSTERDOWN")
_HOPELESS = (e.AuthenticationError, e.AuthorizationError, e.NoPermissionError)
_DISTRUST = "CERTIFICATE_VERIFY_FAILED"  # in the words of OpenSSL
_LOST = (e.ConnectionError, e.TimeoutError, OSError)


class Attempts:
    """The tries of one call."""

    def __init__(self, call: Call, seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._pause = _PAUSE_SECONDS
        self.lost = False  # the last error says that the server may not be where it was

    def after(self, error: Exception, sent: bool) -> float:
        """How long to wait before the next try; raises if there is none."""
        self.lost = False
        if isinstance(error, e.AskError):  # also MOVED: it says where to go
            return 0 if time.monotonic() < self._until else self._give_up(error)
        code = str(error).partition(" ")[0]
        if not isinstance(error, _NOT_YET) and code not in _NOT_YET_CODES:
            hopeless = isinstance(error, _HOPELESS) or _DISTRUST in str(error)
            if hopeless or not isinstance(error, _LOST):
                raise self._refusal(error) from error
            self._call.doubtful |= sent
        self.lost = not isinstance(error, e.TryAgainError)
        if time.monotonic() >= self._until:
            self._give_up(error)
        pause, self._pause = self._pause, min(self._pause * 2, _PAUSE_SECONDS_MAX)
        return pause * random.uniform(0.5, 1)

    def _give_up(self, error: Exception) -> float:
        queue = self._call.queue
        if self._call.doubtful:
            raise UnknownOutcomeError(
                f"mailbox {queue!r}: the connection to Redis was lost and could not be made again "
                f"within {self._seconds:g} seconds ({error}); what was asked may have been done "
                "or not: look before you repeat it, or send with a deduplication_id"
            ) from error
        raise MailboxConnectionError(
            f"mailbox {queue!r}: Redis can't be reached, for {self._seconds:g} seconds now "
            f"({error}); nothing was changed: check that the server is running, then try again"
        ) from error

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
                f"mailbox {queue!r}: Redis takes no writes because it can't save to its disk "
                f"({error}): make room there, or see its log"
            )
        if isinstance(error, _HOPELESS):
            return MailboxConnectionError(
                f"mailbox {queue!r}: Redis refused our credentials ({error}): check the user and "
                "the password"
            )
        if _DISTRUST in text:
            return MailboxConnectionError(
                f"mailbox {queue!r}: the server's certificate is not trusted ({error}): name who "
                "vouches for it, with ssl_ca_certs=FILE behind the ? of the URL"
            )
        return RefusedError(queue, text)
