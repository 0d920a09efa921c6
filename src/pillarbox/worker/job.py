"""The job that a handler gets, the exceptions that decide about its message, and the events.

If the handler returns, its message is acknowledged. It may raise `Retry`, `Reject` or `Release`.
Any other exception is a failure, and the retry policy decides. An event is created only if it has
subscribers. `TaskStarted` and `TaskEnded` are published in the thread or asyncio task of the
handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pillarbox.core.limits import SECOND_NS
from pillarbox.mailbox.message import Message
from pillarbox.worker.lease_keeper import HeldMessage, LeaseKeeper, LeaseTerms

T = TypeVar("T")

Outcome = Literal["succeeded", "retried", "dead", "released"]


class Verdict(Exception):
    """A decision about a message other than to acknowledge it."""

    outcome: ClassVar[Outcome]


class Retry(Verdict):
    """Retry the message, immediately or `after` this many seconds. The delivery counts."""

    outcome = "retried"

    def __init__(self, after: float = 0, why: str = "") -> None:
        super().__init__(why or f"retry after {after:g} seconds")
        self.after = after


class Reject(Verdict):
    """Dead-letter the message with this reason, even if retries are left."""

    outcome = "dead"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Release(Verdict):
    """Return the message to the queue without counting the delivery."""

    outcome = "released"


class LeaseLostError(Exception):
    """The lease is lost: another consumer may have the message."""


class Job(HeldMessage[T], Generic[T]):
    """A message that is being handled: the second argument of a handler that takes two.

    `lost` is None, or the reason why the lease is lost; work after that may be done twice.
    """

    __slots__ = ("_is_stopping", "_keeper", "ended_at")

    def __init__(
        self,
        message: Message[T],
        terms: LeaseTerms[T],
        now: int,
        keeper: LeaseKeeper,
        is_stopping: Callable[[], bool],
    ) -> None:
        super().__init__(message, terms, now)
        self._keeper = keeper
        self._is_stopping = is_stopping
        self.ended_at = now

    @property
    def body(self) -> T:
        """The body of the message."""
        return self.message.body

    @property
    def id(self) -> str:
        """The message id, the same for every delivery."""
        return self.message.id

    @property
    def queue(self) -> str:
        """The name of the mailbox."""
        return self.terms.mailbox.name

    @property
    def delivery_count(self) -> int:
        """1 on the first delivery."""
        return self.message.delivery_count

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes of the message."""
        return self.message.attributes

    @property
    def enqueued_at(self) -> datetime:
        """When the message was sent (UTC)."""
        return self.message.enqueued_at

    @property
    def stopping(self) -> bool:
        """True once the worker is stopping; a long handler may then raise `Release`."""
        return self._is_stopping()

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is lost. Call it between the steps of a handler."""
        if self.lost is not None:
            raise LeaseLostError(
                f"the lease on message {self.id} of mailbox {self.queue!r} is lost: {self.lost}; "
                "stop, and roll back your changes"
            )

    def extend(self, timeout: float) -> bool:
        """Extend the lease for longer than the worker does; never shorten it.

        This blocks. In a coroutine, `await asyncio.to_thread(job.extend, timeout)`.
        """
        return self._keeper.extend(self, timeout)

    @property
    def seconds(self) -> float:
        """The time from the receipt of the message to the end of the handler."""
        return (self.ended_at - self.started_at) / SECOND_NS


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker starts to receive."""

    queue: str
    concurrency: int


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    """A worker has settled or released all its messages."""

    queue: str


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A handler is about to be called."""

    job: Job[Any]


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A handler has ended; `error` is the exception, if it failed."""

    job: Job[Any]
    outcome: Outcome
    error: BaseException | None
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A lease is lost: another consumer may receive the message while its handler runs."""

    job: Job[Any]
    why: str


@dataclass(frozen=True, slots=True)
class ReceiveFailed:
    """A receive failed; the worker retries."""

    queue: str
    error: BaseException
