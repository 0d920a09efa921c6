"""What a worker tells its dispatcher. An event is only made if someone has subscribed to it.

`TaskStarted` and `TaskEnded` are published where the handler runs: in its thread, or in its
asyncio task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pillarbox.worker.job import Job, Outcome


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker begins to receive."""

    queue: str
    concurrency: int


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    """A worker has settled everything it held, or given it back."""

    queue: str


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A handler is about to be called."""

    job: Job[Any]


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A handler has ended; `error` is what it raised, if that was a failure."""

    job: Job[Any]
    outcome: Outcome
    error: BaseException | None
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A message may be with another consumer while its handler still runs, or just after."""

    job: Job[Any]
    why: str


@dataclass(frozen=True, slots=True)
class ReceiveFailed:
    """The mailbox could not be received from; the worker tries again."""

    queue: str
    error: BaseException
