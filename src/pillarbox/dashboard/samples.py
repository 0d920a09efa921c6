"""Five minutes of every queue, one sample a second, from which rates and sparklines come.

Of very many queues only those first in the table, and those that somebody opened, have a past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock
from time import monotonic
from typing import NamedTuple

from pillarbox.core.errors import MailboxError
from pillarbox.dashboard.boxes import Boxes, Totals
from pillarbox.mailbox.protocol import Stats

SECONDS_KEPT = 300
RATE_SECONDS = 5
OLD_SECONDS = 300.0
ROWS_MAX = 50  # queues on one screen
PASTS_MAX = 200
OTHERS_MAX = 500  # queues without a past that one sample looks at
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


class Table(NamedTuple):
    """The queues on the first screen."""

    rows: list[Row]
    found: int  # how many there are, shown or not
    search: str


class Samples:
    """Takes samples and keeps them for a while."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._kept: dict[str, deque[Sample]] = {}
        self._order: list[str] = []  # trouble first
        self._opened: dict[str, None] = {}  # the queues whose pages were opened last
        self._lock = Lock()
        self._next = 0  # of those that have no past, the one that is looked at next

    def take(self, only: Sequence[str] | None = None) -> None:
        """One sample of the queues whose turn it is, or of these."""
        with self._lock:
            self._take(only)

    def _take(self, only: Sequence[str] | None) -> None:
        now = monotonic()
        with_a_past = {*self._order[:PASTS_MAX], *self._opened}
        names = self._boxes.names()
        for name in self._turn(names, with_a_past) if only is None else only:
            box = self._boxes.open(name)
            if box is None:
                continue
            try:
                stats = box.stats()
            except MailboxError:  # it can't be reached now: a gap in its line says so
                continue
            kept = self._kept.setdefault(name, deque(maxlen=SECONDS_KEPT))
            if kept and name not in with_a_past:
                kept.clear()
            kept.append(Sample(now, stats, self._boxes.totals(name)))
        for gone in self._kept.keys() - set(names):
            del self._kept[gone]
        self._order = sorted(self._kept, key=self._place)

    def _turn(self, names: Sequence[str], with_a_past: set[str]) -> list[str]:
        """All queues with a past, all that are new, and some of the others after each other."""
        known = [name for name in names if name in self._kept and name not in with_a_past]
        start = self._next if self._next < len(known) else 0
        self._next = start + OTHERS_MAX
        others = set(known) - set(known[start : self._next])
        return [name for name in names if name not in others]

    def _place(self, name: str) -> tuple[bool, bool, str]:
        dead_queue = is_dead_queue(name)
        return not _trouble(self._kept[name][-1].stats, dead_queue), dead_queue, name

    def note(self, name: str) -> None:
        """Somebody looks at this queue: keep its past."""
        self._opened.pop(name, None)
        self._opened[name] = None
        if len(self._opened) > PASTS_MAX:
            del self._opened[next(iter(self._opened))]

    def of(self, name: str) -> deque[Sample]:
        return self._kept.get(name, deque())

    def table(self, search: str = "") -> Table:
        """A screenful of queues whose names contain this, trouble first."""
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


def is_dead_queue(name: str) -> bool:
    return name.removesuffix(".fifo").endswith("_dlq")


def _trouble(stats: Stats, dead_queue: bool) -> str:
    old = stats.oldest_age_seconds is not None and stats.oldest_age_seconds > OLD_SECONDS
    if old and not dead_queue:
        return f"the oldest has waited {OLD_SECONDS / 60:.0f} minutes or more"
    dead = stats.total if dead_queue else stats.dead
    return f"{dead:,} dead letter{'s' if dead > 1 else ''}" if dead else ""
