"""The events of a worker. An event is created only if there are subscribers.

`TaskStarted` and `TaskEnded` are published where the handler runs: in its thread, or in its
asyncio task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pillarbox.worker.job import Job, Outcome


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
