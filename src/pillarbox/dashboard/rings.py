"""The past of a queue in little space: 10 minutes, 2 hours and a day, in 120 to 144 intervals each.

A queue takes about 20 kB. Levels are the highest of an interval. What was sent and deleted between
two samples is spread over the time between them, so that samples close together make no peak.
"""

from __future__ import annotations

from array import array
from math import isnan, nan
from typing import NamedTuple

from pillarbox.mailbox.protocol import Stats

SPANS = {"10 minutes": (5, 120), "2 hours": (60, 120), "24 hours": (600, 144)}
_CLOSE_SECONDS = 0.2
_LEVELS = 3
_SENT, _DONE, _SECONDS = 3, 4, 5
_FIELDS = 6

HistoryState = dict[str, tuple[int, bytes]]  # by span: the newest interval, and all values


class Point(NamedTuple):
    """One interval, which ended `before` seconds ago; None where nothing is known."""

    before: float
    ready: float | None
    in_flight: float | None
    scheduled: float | None
    sent_per_second: float | None
    done_per_second: float | None


class Ring:
    """The last intervals of one length."""

    def __init__(self, step: int, count: int) -> None:
        self._step, self._count = step, count
        self._values = array("d", [nan] * _LEVELS + [0.0] * (_FIELDS - _LEVELS)) * count
        self._last = -1  # number of the newest interval

    def state(self) -> tuple[int, bytes]:
        return self._last, self._values.tobytes()

    def restore(self, last: int, data: bytes, now: float) -> None:
        """Continue from a saved state, unless it is of another size or from the future."""
        if last <= now // self._step and len(data) == len(self._values) * self._values.itemsize:
            self._last, self._values = last, array("d", data)

    def add_levels(self, at: float, levels: tuple[int, int, int]) -> None:
        place = self._place(int(at // self._step))
        for i, level in enumerate(levels, place):
            if isnan(self._values[i]) or level > self._values[i]:
                self._values[i] = level

    def add_counts(self, since: float, at: float, sent: int, done: int) -> None:
        newest = int(at // self._step)
        for number in range(max(int(since // self._step), newest - self._count + 1), newest + 1):
            start = number * self._step
            seconds = min(at, start + self._step) - max(since, start)
            place, share = self._place(number), seconds / (at - since)
            self._values[place + _SENT] += sent * share
            self._values[place + _DONE] += done * share
            self._values[place + _SECONDS] += seconds

    def _place(self, number: int) -> int:
        for new in range(max(self._last + 1, number - self._count + 1), number + 1):
            place = new % self._count * _FIELDS
            self._values[place : place + _FIELDS] = array(
                "d", [nan] * _LEVELS + [0.0] * (_FIELDS - _LEVELS)
            )
        self._last = max(self._last, number)
        return number % self._count * _FIELDS

    def points(self, count: int | None = None) -> list[Point]:
        """The last intervals in order, without those before the first sample."""
        found: list[Point] = []
        count = min(count or self._count, self._last + 1)
        for number in range(self._last - count + 1, self._last + 1):
            place = number % self._count * _FIELDS
            ready, in_flight, scheduled, sent, done, seconds = self._values[place : place + _FIELDS]
            if not found and isnan(ready):
                continue
            rates = (sent / seconds, done / seconds) if seconds >= 1 else (None, None)
            levels = (None if isnan(level) else level for level in (ready, in_flight, scheduled))
            found.append(Point((self._last - number) * self._step, *levels, *rates))
        return found


class History:
    """The rings of one queue."""

    def __init__(self, saved: HistoryState | None = None, now: float = 0.0) -> None:
        self._rings = {name: Ring(*size) for name, size in SPANS.items()}
        self._counted: tuple[float, int, int] | None = None  # when, sent, done
        for name, state in (saved or {}).items():
            if name in self._rings:
                self._rings[name].restore(*state, now)

    def state(self) -> HistoryState:
        """What to save, to go on from it after a restart."""
        return {name: ring.state() for name, ring in self._rings.items()}

    def add(self, at: float, stats: Stats, counts: tuple[int, int] | None) -> None:
        """Add a sample; `counts` are the messages sent and deleted since the broker started."""
        before = self._counted
        for ring in self._rings.values():
            ring.add_levels(at, (stats.ready, stats.in_flight, stats.scheduled))
        if counts is None or (before is not None and at - before[0] < _CLOSE_SECONDS):
            return
        self._counted = (at, *counts)
        if before is not None:
            sent, done = (max(0, new - old) for new, old in zip(counts, before[1:], strict=True))
            for ring in self._rings.values():
                ring.add_counts(before[0], at, sent, done)

    def points(self, span: str) -> list[Point]:
        return self._rings[span].points()

    def rates(self) -> tuple[float | None, float | None]:
        """Messages per second of late: sent, and deleted."""
        recent = next(iter(self._rings.values())).points(2)
        known = [point for point in recent if point.sent_per_second is not None]
        if not known:
            return None, None
        sent = sum(point.sent_per_second or 0 for point in known) / len(known)
        return sent, sum(point.done_per_second or 0 for point in known) / len(known)
