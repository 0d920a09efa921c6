"""Retry policies: how often a failed message is retried, and after which delay."""

from __future__ import annotations

import random
from dataclasses import dataclass

from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.limits import DELIVERIES_MAX, VISIBILITY_SECONDS_MAX, seconds, whole
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.worker.job import Reject, Retry, Verdict

_DOUBLINGS_MAX = 32
REPLY_SECONDS = 60  # delay after the first reply that can't be sent, then doubled
REPLY_SECONDS_MAX = 3_600


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff: `backoff` seconds, doubled with each delivery, up to `backoff_max`.

    `jitter` is the random fraction of each delay, which spreads messages that failed together.
    Without `retries`, the dead-letter policy of the mailbox decides when to give up.
    """

    retries: int | None = None
    backoff: float = 1.0
    backoff_max: float = 600.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if self.retries is not None:
            whole("retries", self.retries, 0, DELIVERIES_MAX - 1)
        seconds("backoff", self.backoff, VISIBILITY_SECONDS_MAX)
        seconds("backoff_max", self.backoff_max, VISIBILITY_SECONDS_MAX)
        if not 0 <= self.jitter <= 1:
            raise InvalidParameterError("jitter", self.jitter, "a number from 0 to 1")

    def verdict(self, error: BaseException, delivery_count: int) -> Verdict:
        """Return what to do with a message whose handler raised this error."""
        if isinstance(error, Verdict):
            return error
        what = describe(error)
        if self.retries is not None and delivery_count > self.retries:
            return Reject(f"failed {delivery_count} times, most recently with {what}")
        return Retry(self.delay(delivery_count), what)

    def delay(self, delivery_count: int) -> float:
        """Return the seconds before the next delivery."""
        longest = exponential(self.backoff, delivery_count, self.backoff_max)
        return longest * (1 - self.jitter * random.random())

    @property
    def dead_letters(self) -> DeadLetterPolicy | None:
        """The mailbox policy for `retries`; it also counts deliveries that crash the worker."""
        return None if self.retries is None else DeadLetterPolicy(self.retries + 1)


def exponential(first: float, delivery_count: int, most: float) -> float:
    """Return `first` for the first delivery, doubled with each further one, up to `most`."""
    return min(first * float(1 << min(delivery_count - 1, _DOUBLINGS_MAX)), most)


def reply_not_sent(error: BaseException, delivery_count: int) -> Retry:
    """Return a retry after a long delay, for a handler whose reply could not be sent."""
    after = exponential(REPLY_SECONDS, delivery_count, REPLY_SECONDS_MAX)
    return Retry(after, f"the reply could not be sent: {describe(error)}")


def describe(error: BaseException) -> str:
    """Describe an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
