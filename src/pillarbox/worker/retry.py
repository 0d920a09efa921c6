"""How often a failed message is tried again, and how long it rests in between."""

from __future__ import annotations

import random
from dataclasses import dataclass

from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.limits import DELIVERIES_MAX, VISIBILITY_SECONDS_MAX, seconds, whole
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.worker.job import Reject, Retry, Verdict

_DOUBLINGS_MAX = 32
ANSWER_SECONDS = 60  # a request whose answer can't be sent rests for this long, then doubled
ANSWER_SECONDS_MAX = 3_600


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """After a failure: wait `backoff` seconds, doubled with each delivery, up to `backoff_max`.

    A part of each wait, `jitter`, is left to chance, so that what failed together does not come
    back together. Without `retries` the mailbox's own dead-letter policy decides when it is over.
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
        """What becomes of a message whose handler raised this."""
        if isinstance(error, Verdict):
            return error
        what = describe(error)
        if self.retries is not None and delivery_count > self.retries:
            return Reject(f"failed {delivery_count} times, at last with {what}")
        return Retry(self.delay(delivery_count), what)

    def delay(self, delivery_count: int) -> float:
        """How long to rest before the next delivery."""
        whole_wait = growing(self.backoff, delivery_count, self.backoff_max)
        return whole_wait * (1 - self.jitter * random.random())

    @property
    def dead_letters(self) -> DeadLetterPolicy | None:
        """The policy of a mailbox that counts for us, also what kills its worker."""
        return None if self.retries is None else DeadLetterPolicy(self.retries + 1)


def growing(first: float, delivery_count: int, most: float) -> float:
    """`first` for the first delivery, then doubled with each, up to `most`."""
    return min(first * float(1 << min(delivery_count - 1, _DOUBLINGS_MAX)), most)


def answer_not_sent(error: BaseException, delivery_count: int) -> Retry:
    """The work is done but its answer is stuck: rest long, and do it again."""
    after = growing(ANSWER_SECONDS, delivery_count, ANSWER_SECONDS_MAX)
    return Retry(after, f"the answer could not be sent: {describe(error)}")


def describe(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
