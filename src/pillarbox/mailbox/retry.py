"""Retries a call while the server can't be reached.

Each backend classifies its server's errors: `after` returns how long to wait before the next
attempt, or raises. The time limit and the final error are the same for all backends.
"""

from __future__ import annotations

import random
import time
from typing import Any, NoReturn

from pillarbox.core.errors import MailboxConnectionError, UnknownOutcomeError

_PAUSE_SECONDS = 0.01  # before the second attempt; doubled each time, with jitter
_PAUSE_SECONDS_MAX = 0.5


class Attempts:
    """The attempts of one call; the call is `doubtful` once a response was lost."""

    server: str  # display name

    def __init__(self, call: Any, seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._pause = _PAUSE_SECONDS

    def pause(self, error: Exception) -> float:
        """Return the seconds before the next attempt; raise if the time is up."""
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
