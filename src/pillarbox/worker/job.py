"""One message in a worker's hands, and what a handler may decide about it.

A handler that returns is done: its message is acknowledged. One that raises `Retry`, `Reject` or
`Release` has decided; whatever else it raises is a failure, and the retry policy decides.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Generic, Literal, TypeVar

from pillarbox.core.limits import SECOND_NS
from pillarbox.mailbox.message import Message
from pillarbox.worker.lease_keeper import Held, LeaseKeeper, Terms

T = TypeVar("T")

Outcome = Literal["acknowledged", "retried", "rejected", "released"]


class Verdict(Exception):
    """What becomes of a message that was not simply done."""

    outcome: ClassVar[Outcome]


class Retry(Verdict):
    """Try again: at once, or `after` so many seconds. The delivery counts."""

    outcome = "retried"

    def __init__(self, after: float = 0, why: str = "") -> None:
        super().__init__(why or f"try again after {after:g} seconds")
        self.after = after


class Reject(Verdict):
    """Nobody can do this: to the dead letters, with this reason, whatever the retries left."""

    outcome = "rejected"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Release(Verdict):
    """Not for this worker: give it back with no delivery counted."""

    outcome = "released"


class LeaseLostError(Exception):
    """The lease is gone: another consumer may have the message by now."""


class Job(Held[T], Generic[T]):
    """A message that is being handled. A handler with a second parameter is given it.

    `lost` says why the lease is gone, once it is; work that goes on after that may be done twice.
    """

    __slots__ = ("_keeper", "_stopping")

    def __init__(
        self,
        message: Message[T],
        terms: Terms[T],
        now: int,
        keeper: LeaseKeeper,
        stopping: threading.Event,
    ) -> None:
        super().__init__(message, terms, now)
        self._keeper = keeper
        self._stopping = stopping

    @property
    def body(self) -> T:
        """What the sender sent."""
        return self.message.body

    @property
    def id(self) -> str:
        """The message's id: the same for every delivery."""
        return self.message.id

    @property
    def queue(self) -> str:
        """The name of the mailbox it came from."""
        return self.terms.mailbox.name

    @property
    def delivery_count(self) -> int:
        """1 on the first delivery."""
        return self.message.delivery_count

    @property
    def attributes(self) -> Mapping[str, str]:
        """What the sender wrote beside the body."""
        return self.message.attributes

    @property
    def enqueued_at(self) -> datetime:
        """When it was sent (UTC)."""
        return self.message.enqueued_at

    @property
    def stopping(self) -> bool:
        """True once the worker was asked to stop: long work may end early, by `Release`."""
        return self._stopping.is_set()

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is gone: for a handler with many steps."""
        if self.lost is not None:
            raise LeaseLostError(
                f"the lease on message {self.id} of mailbox {self.queue!r} is lost: {self.lost}; "
                "stop, and undo or make harmless what was done"
            )

    def extend(self, timeout: float) -> bool:
        """Ask for a longer lease than the keeper does; it is never shortened.

        This waits for the mailbox: in a coroutine, `await asyncio.to_thread(job.extend, timeout)`.
        """
        return self._keeper.extend(self, timeout)

    def seconds(self, now: int) -> float:
        """How long it has been worked on."""
        return (now - self.started_at) / SECOND_NS
