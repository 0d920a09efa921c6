"""Samples of every queue, for the table of queues, rates and charts.

With very many queues, only the first in the table and those recently opened have a history.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic, time
from typing import Any, NamedTuple

import msgspec

from pillarbox.core.errors import MailboxError
from pillarbox.dashboard.mailboxes import Mailboxes
from pillarbox.dashboard.rings import SPANS, History, HistoryState, Point
from pillarbox.logger import logger
from pillarbox.mailbox.protocol import Stats

OLD_SECONDS = 300.0
ROWS_MAX = 50  # queues on one screen
HISTORIES_MAX = 200
OTHERS_MAX = 500  # queues without a history that are sampled per round
SHORT_SPAN = next(iter(SPANS))
_SPARK_POINTS = 60  # of 5 seconds each


class Row(NamedTuple):
    """A queue in the table, with its dead-letter queue."""

    name: str
    stats: Stats
    dead_name: str | None
    paused: bool
    consumers: int | None = None
    sent_per_second: float | None = None
    done_per_second: float | None = None
    spark: tuple[int, ...] = ()

    @property
    def is_dead_queue(self) -> bool:
        return self.dead_name is None and self.name.removesuffix(".fifo").endswith("_dlq")

    @property
    def dead(self) -> int:
        return self.stats.total if self.is_dead_queue else self.stats.dead

    @property
    def is_late(self) -> bool:
        """Whether a message has waited for more than five minutes."""
        age = self.stats.oldest_age_seconds
        return age is not None and age > OLD_SECONDS and not self.is_dead_queue


SORT_KEYS: dict[str, Callable[[Row], Any]] = {
    "name": lambda row: row.name,
    "ready": lambda row: -row.stats.ready,
    "in flight": lambda row: -row.stats.in_flight,
    "scheduled": lambda row: -row.stats.scheduled,
    "dead": lambda row: -row.dead,
    "oldest": lambda row: -(row.stats.oldest_age_seconds or 0),
    "in/s": lambda row: -(row.sent_per_second or 0),
    "out/s": lambda row: -(row.done_per_second or 0),
    "polling": lambda row: -(row.consumers or 0),
    "": lambda row: (not row.dead and not row.is_late, row.is_dead_queue),  # problems first
}


class Table(NamedTuple):
    """The queues on the home page."""

    rows: list[Row]
    found: int  # number of matching queues
    search: str
    sort: str
    totals: dict[str, float | None]  # of all queues


class Samples:
    """Takes samples, and keeps the newest of each queue and the histories of some."""

    def __init__(self, boxes: Mailboxes) -> None:
        self._boxes = boxes
        self._rows: dict[str, Row] = {}
        self._histories: dict[str, History] = {}
        self._recently_viewed: dict[str, None] = {}  # queues by name, oldest first
        self._lock = Lock()
        self._next = 0  # position among the queues without a history
        self._started_at = time() - monotonic()  # so that intervals continue after a restart
        self._load()

    def take(self, only: Sequence[str] | None = None) -> None:
        """Take a sample of the queues that are due, or of the given ones."""
        with self._lock:
            names = self._boxes.names()
            for name in self._due(names) if only is None else only:
                try:
                    self._take(name)
                except MailboxError:  # can't be reached: leave a gap in the chart
                    continue
            for gone in (self._rows.keys() | self._histories.keys()) - set(names):
                self._rows.pop(gone, None)
                self._histories.pop(gone, None)

    def _take(self, name: str) -> None:
        box = self._boxes.open(name)
        if box is None:
            return
        stats, dead, totals = box.stats(), box.dead_letters, self._boxes.totals(name)
        rates: tuple[float | None, float | None] = (None, None)
        known = name in self._histories or name in self._recently_viewed
        if known or len(self._rows) < HISTORIES_MAX:
            history = self._histories.setdefault(name, History())
            history.add(self._now(), stats, None if totals is None else totals[:2])
            rates = history.rates()
        dead_name = dead.name if dead is not None else None
        consumers = totals.consumers if totals is not None else None
        paused = self._boxes.is_paused(name)
        self._rows[name] = Row(name, stats, dead_name, paused, consumers, *rates)

    def _due(self, names: Sequence[str]) -> list[str]:
        """Return queues with a history, new queues, and the next few of the others."""
        without_history = [
            name for name in names if name in self._rows and name not in self._histories
        ]
        start = self._next if self._next < len(without_history) else 0
        self._next = start + OTHERS_MAX
        others = set(without_history) - set(without_history[start : self._next])
        return [name for name in names if name not in others]

    def keep_history(self, name: str) -> None:
        """Keep the history of a queue whose page was opened."""
        with self._lock:
            self._recently_viewed.pop(name, None)
            self._recently_viewed[name] = None
            if len(self._recently_viewed) > HISTORIES_MAX:
                oldest = next(iter(self._recently_viewed))
                del self._recently_viewed[oldest]
                self._histories.pop(oldest, None)

    def points(self, name: str, span: str) -> list[Point]:
        with self._lock:
            history = self._histories.get(name)
            return history.points(span) if history is not None else []

    def save(self) -> None:
        """Write the histories to the file of the backend, if it has one."""
        path = self._boxes.history_file
        if path is None:
            return
        with self._lock:
            states = {name: history.state() for name, history in self._histories.items()}
        try:
            with open(f"{path}.new", "wb") as file:
                file.write(zlib.compress(msgspec.msgpack.encode(states), 1))
            os.replace(f"{path}.new", path)
        except OSError as error:
            logger.warning("the dashboard's history was not saved", file=path, error=str(error))

    def _load(self) -> None:
        path = self._boxes.history_file
        if path is None or not os.path.exists(path):
            return
        try:
            with open(path, "rb") as file:
                data = zlib.decompress(file.read())
            states = msgspec.msgpack.decode(data, type=dict[str, HistoryState])
        except (OSError, zlib.error, msgspec.MsgspecError) as error:
            logger.warning("the dashboard's history can't be read", file=path, error=str(error))
            return
        for name, state in states.items():
            self._histories[name] = History(state, self._now())

    def _now(self) -> float:
        """Return the wall-clock time at the start of this process plus the seconds since."""
        return self._started_at + monotonic()

    def row(self, name: str) -> Row | None:
        return self._rows.get(name)

    def sources(self, name: str) -> list[str]:
        """Return the queues whose dead letters go to this one."""
        return sorted(row.name for row in list(self._rows.values()) if row.dead_name == name)

    def table(self, search: str = "", sort: str = "") -> Table:
        """Return the queues that match `search`. Dead-letter queues are part of their queue."""
        rows = list(self._rows.values())
        folded = {row.dead_name for row in rows}
        matching = [
            row
            for row in rows
            if row.name not in folded and search in f"{row.name} {row.dead_name or ''}"
        ]
        matching.sort(key=lambda row: (SORT_KEYS[sort](row), row.name))
        shown = [row._replace(spark=self._spark(row.name)) for row in matching[:ROWS_MAX]]
        return Table(shown, len(matching), search, sort, _totals(rows, folded))

    def _spark(self, name: str) -> tuple[int, ...]:
        points = self.points(name, SHORT_SPAN)[-_SPARK_POINTS:]
        return tuple(int(point.ready) for point in points if point.ready is not None)


def _totals(rows: Sequence[Row], folded: set[str | None]) -> dict[str, float | None]:
    own = [row for row in rows if row.name not in folded]
    return {
        "queues": len(own),
        "ready": sum(row.stats.ready for row in own if not row.is_dead_queue),
        "in flight": sum(row.stats.in_flight for row in own),
        "scheduled": sum(row.stats.scheduled for row in own),
        "dead": sum(row.stats.total for row in rows if row.name in folded or row.is_dead_queue),
        "in/s": _sum([row.sent_per_second for row in rows]),
        "out/s": _sum([row.done_per_second for row in rows]),
    }


def _sum(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
