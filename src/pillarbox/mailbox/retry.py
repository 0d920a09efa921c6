"""A call to a server that is tried again while the server can't be reached.

Each backend knows what its server's errors mean: `after` says how long to wait before the next
try, or raises. How long to go on, and what the caller is told in the end, is the same for all.
"""

from __future__ import annotations

import random
import time
from typing import Any, NoReturn

from pillarbox.core.errors import MailboxConnectionError, UnknownOutcomeError

_PAUSE_SECONDS = 0.01  # before the second try; then doubled, and less by chance
_PAUSE_SECONDS_MAX = 0.5


class Attempts:
    """The tries of one call, which has a `queue`, and is `doubtful` once an answer was lost."""

    server: str  # its name, for people

    def __init__(self, call: Any, seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._pause = _PAUSE_SECONDS

    def pause(self, error: Exception) -> float:
        """How long to wait before the next try; raises if the time is up."""
        if time.monotonic() >= self._until:
            self.give_up(error)
        pause, self._pause = self._pause, min(self._pause * 2, _PAUSE_SECONDS_MAX)
        return pause * random.uniform(0.5, 1)

    def give_up(self, error: Exception) -> NoReturn:
        queue, why = self._call.queue, str(error).strip()
        if self._call.doubtful:
            raise UnknownOutcomeError(
                f"mailbox {queue!r}: the connection to {self.server} was lost before it answered "
                f"({why}); the call may or may not have taken effect: check the queue before you "
                "retry, or send with a deduplication_id"
            ) from error
        raise MailboxConnectionError(
            f"mailbox {queue!r}: {self.server} can't be reached (tried for {self._seconds:g} "
            f"seconds: {why}); nothing was changed: check that the server is running, then try "
            "again"
        ) from error
