"""Five minutes of every queue, one sample a second, from which rates and sparklines come."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import NamedTuple

from pillarbox.core.errors import MailboxError
from pillarbox.dashboard.boxes import Boxes, Totals
from pillarbox.mailbox.protocol import Stats

SECONDS_KEPT = 300
RATE_SECONDS = 5
OLD_SECONDS = 300.0
_SPARK_POINTS = 60


class Sample(NamedTuple):
    """What a queue held at one moment."""

    at: float
    stats: Stats
    totals: Totals | None


class Row(NamedTuple):
    """A queue as a table shows it."""

    name: str
    stats: Stats
    sent_per_second: float | None
    done_per_second: float | None
    consumers: int | None
    spark: tuple[int, ...]
    trouble: str  # what is wrong, in a few words; empty if nothing is
    dead_queue: bool


class Samples:
    """Takes samples and keeps them for a while."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._kept: dict[str, deque[Sample]] = {}

    def take(self) -> None:
        names = self._boxes.names()
        for name in names:
            box = self._boxes.open(name)
            if box is None:
                continue
            try:
                stats = box.stats()
            except MailboxError:  # it can't be reached now: a gap in its line says so
                continue
            kept = self._kept.setdefault(name, deque(maxlen=SECONDS_KEPT))
            kept.append(Sample(monotonic(), stats, self._boxes.totals(name)))
        for gone in self._kept.keys() - set(names):
            del self._kept[gone]

    def of(self, name: str) -> deque[Sample]:
        return self._kept.get(name, deque())

    def rows(self) -> list[Row]:
        """Every queue, trouble first."""
        rows = [self.row(name) for name in self._kept]
        return sorted(rows, key=lambda row: (not row.trouble, row.dead_queue, row.name))

    def row(self, name: str) -> Row:
        kept = self._kept[name]
        last = kept[-1]
        sent, done = rates(kept)
        dead_queue = name.removesuffix(".fifo").endswith("_dlq")
        consumers = last.totals.consumers if last.totals is not None else None
        spark = tuple(sample.stats.total for sample in kept)
        step = max(1, -(-len(spark) // _SPARK_POINTS))
        return Row(
            name, last.stats, sent, done, consumers, spark[::-step][::-1],
            _trouble(last.stats, dead_queue), dead_queue,
        )  # fmt: skip


def rates(kept: deque[Sample]) -> tuple[float | None, float | None]:
    """Messages a second that came in, and that were done, lately."""
    if len(kept) < 2 or kept[-1].totals is None:
        return None, None
    last = kept[-1]
    before = next((s for s in reversed(kept) if last.at - s.at >= RATE_SECONDS), kept[0])
    if before.totals is None or last.totals is None:
        return None, None
    seconds = max(last.at - before.at, 0.001)
    return (
        (last.totals.sent - before.totals.sent) / seconds,
        (last.totals.done - before.totals.done) / seconds,
    )


def _trouble(stats: Stats, dead_queue: bool) -> str:
    old = stats.oldest_age_seconds is not None and stats.oldest_age_seconds > OLD_SECONDS
    if old and not dead_queue:
        return "the oldest message waits for long"
    dead = stats.total if dead_queue else stats.dead
    return f"{dead:,} dead letter{'s' if dead > 1 else ''}" if dead else ""
