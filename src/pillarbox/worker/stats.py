"""The stats of a worker: outcomes of its messages, and durations of its handlers."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from msgspec import Struct, field

#: Upper bounds of the buckets of the duration histogram; the last bucket has none.
DURATION_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800)


def _buckets() -> list[int]:
    return [0] * (len(DURATION_SECONDS) + 1)


class WorkerStats(Struct):
    """Counters of settled messages, and the current activity of the worker.

    `failed` counts handlers and replies that raised; those messages are also counted by their
    outcome. A message that the mailbox dead-letters by its own policy counts as `retried`,
    because the worker does not see that.
    """

    queue: str
    connected: bool = False  # whether the last receive succeeded
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    seconds: float = 0.0  # the total duration of all handlers
    buckets: list[int] = field(default_factory=_buckets)  # handlers by duration

    @property
    def handled(self) -> int:
        """The number of settled messages, with any outcome."""
        return self.succeeded + self.retried + self.dead + self.released

    def count(self, outcome: str, seconds: float, *, failed: bool) -> None:
        """Count one settled message."""
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.failed += failed
        self.seconds += seconds
        self.buckets[bisect_left(DURATION_SECONDS, seconds)] += 1

    def add(self, other: WorkerStats) -> None:
        """Add the stats of another process."""
        self.queue = other.queue
        for name in ("in_progress", "succeeded", "failed", "retried", "dead", "released"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.seconds += other.seconds
        self.buckets = [
            mine + theirs for mine, theirs in zip(self.buckets, other.buckets, strict=True)
        ]
