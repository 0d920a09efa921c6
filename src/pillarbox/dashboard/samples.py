"""Samples of every queue, one per second for five minutes, for rates and sparklines.

With very many queues, only the first in the table and those recently opened have a history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock
from time import monotonic
from typing import NamedTuple

from pillarbox.core.errors import MailboxError
from pillarbox.dashboard.mailboxes import Mailboxes, Totals
from pillarbox.mailbox.protocol import Stats

SECONDS_KEPT = 300
RATE_SECONDS = 5
OLD_SECONDS = 300.0
ROWS_MAX = 50  # queues on one screen
HISTORIES_MAX = 200
OTHERS_MAX = 500  # queues without a history that are sampled per round
_SPARK_POINTS = 60


class Sample(NamedTuple):
    """The statistics of a queue at one time."""

    at: float
    stats: Stats
    totals: Totals | None


class Row(NamedTuple):
    """A queue in the table."""

    name: str
    stats: Stats
    sent_per_second: float | None
    done_per_second: float | None
    consumers: int | None
    spark: tuple[int, ...]
    warning: str  # a short warning, or empty
    dead_queue: bool


class Table(NamedTuple):
    """The queues on the home page."""

    rows: list[Row]
    found: int  # number of matching queues
    search: str


class Samples:
    """Takes samples and keeps them."""

    def __init__(self, boxes: Mailboxes) -> None:
        self._boxes = boxes
        self._kept: dict[str, deque[Sample]] = {}
        self._order: list[str] = []  # those with a warning first
        self._opened: dict[str, None] = {}  # recently opened queues, oldest first
        self._lock = Lock()
        self._next = 0  # position among the queues without a history

    def take(self, only: Sequence[str] | None = None) -> None:
        """Take a sample of the queues that are due, or of the given ones."""
        with self._lock:
            self._take(only)

    def _take(self, only: Sequence[str] | None) -> None:
        now = monotonic()
        with_history = {*self._order[:HISTORIES_MAX], *self._opened}
        names = self._boxes.names()
        for name in self._due(names, with_history) if only is None else only:
            box = self._boxes.open(name)
            if box is None:
                continue
            try:
                stats = box.stats()
            except MailboxError:  # not reachable now: leaves a gap in the chart
                continue
            kept = self._kept.setdefault(name, deque(maxlen=SECONDS_KEPT))
            if kept and name not in with_history:
                kept.clear()
            kept.append(Sample(now, stats, self._boxes.totals(name)))
        for gone in self._kept.keys() - set(names):
            del self._kept[gone]
        self._order = sorted(self._kept, key=self._sort_key)

    def _due(self, names: Sequence[str], with_history: set[str]) -> list[str]:
        """Queues with a history, new queues, and the next few of the others."""
        known = [name for name in names if name in self._kept and name not in with_history]
        start = self._next if self._next < len(known) else 0
        self._next = start + OTHERS_MAX
        others = set(known) - set(known[start : self._next])
        return [name for name in names if name not in others]

    def _sort_key(self, name: str) -> tuple[bool, bool, str]:
        dead_queue = is_dead_queue(name)
        return not _warning(self._kept[name][-1].stats, dead_queue), dead_queue, name

    def keep_history(self, name: str) -> None:
        """Keep the history of a queue whose page was opened."""
        self._opened.pop(name, None)
        self._opened[name] = None
        if len(self._opened) > HISTORIES_MAX:
            del self._opened[next(iter(self._opened))]

    def of(self, name: str) -> deque[Sample]:
        return self._kept.get(name, deque())

    def table(self, search: str = "") -> Table:
        """Queues whose names contain `search`, those with a warning first."""
        found = [name for name in self._order if search in name and name in self._kept]
        rows = [self.row(name) for name in found[:ROWS_MAX]]
        return Table(rows, len(found), search)

    def row(self, name: str) -> Row:
        kept = self._kept[name]
        last = kept[-1]
        sent, done = rates(kept)
        dead_queue = is_dead_queue(name)
        consumers = last.totals.consumers if last.totals is not None else None
        spark = tuple(sample.stats.total for sample in kept)
        step = max(1, -(-len(spark) // _SPARK_POINTS))
        return Row(
            name, last.stats, sent, done, consumers, spark[::-step][::-1],
            _warning(last.stats, dead_queue), dead_queue,
        )  # fmt: skip


def rates(kept: deque[Sample]) -> tuple[float | None, float | None]:
    """Recent messages per second: sent, and deleted."""
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


def is_dead_queue(name: str) -> bool:
    return name.removesuffix(".fifo").endswith("_dlq")


def _warning(stats: Stats, dead_queue: bool) -> str:
    old = stats.oldest_age_seconds is not None and stats.oldest_age_seconds > OLD_SECONDS
    if old and not dead_queue:
        return f"the oldest message is over {OLD_SECONDS / 60:.0f} minutes old"
    dead = stats.total if dead_queue else stats.dead
    return f"{dead:,} dead letter{'s' if dead > 1 else ''}" if dead else ""
