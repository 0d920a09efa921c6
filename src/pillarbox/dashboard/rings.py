"""The history of a queue in ring buffers: 10 minutes, 2 hours and a day, 120 to 144 points each.

A queue takes about 20 kB. A level is the highest of its interval. Messages sent and deleted between
two samples are spread over the time between them, so that samples close together make no peak.
"""

from __future__ import annotations

from array import array
from math import isnan, nan
from typing import NamedTuple

from pillarbox.mailbox.protocol import Stats

SPANS = {"10 minutes": (5, 120), "2 hours": (60, 120), "24 hours": (600, 144)}
_CLOSE_SECONDS = 0.2
_SENT, _DONE, _SECONDS = 3, 4, 5  # the fields of an interval after its three levels
_EMPTY = array("d", [nan, nan, nan, 0.0, 0.0, 0.0])
_FIELDS = len(_EMPTY)

HistoryState = dict[str, tuple[int, bytes]]  # by span: the newest interval, and all values


class Point(NamedTuple):
    """One interval, which ended `before` seconds ago; None where there are no samples."""

    before: float
    ready: float | None
    in_flight: float | None
    scheduled: float | None
    sent_per_second: float | None
    done_per_second: float | None


class Ring:
    """A ring buffer of the last intervals of one length."""

    def __init__(self, step: int, count: int) -> None:
        self._step, self._count = step, count
        self._values = _EMPTY * count
        self._last = -1  # number of the newest interval

    def state(self) -> tuple[int, bytes]:
        return self._last, self._values.tobytes()

    def restore(self, last: int, data: bytes, now: float) -> None:
        """Continue from a saved state, unless it has another size or is from the future."""
        if last <= now // self._step and len(data) == len(self._values) * self._values.itemsize:
            self._last, self._values = last, array("d", data)

    def add_levels(self, at: float, levels: tuple[int, int, int]) -> None:
        offset = self._offset(int(at // self._step))
        for i, level in enumerate(levels, offset):
            if isnan(self._values[i]) or level > self._values[i]:
                self._values[i] = level

    def add_counts(self, since: float, at: float, sent: int, done: int) -> None:
        newest = int(at // self._step)
        for number in range(max(int(since // self._step), newest - self._count + 1), newest + 1):
            start = number * self._step
            seconds = min(at, start + self._step) - max(since, start)
            offset, share = self._offset(number), seconds / (at - since)
            self._values[offset + _SENT] += sent * share
            self._values[offset + _DONE] += done * share
            self._values[offset + _SECONDS] += seconds

    def _offset(self, number: int) -> int:
        """Return the offset of an interval in the buffer, and clear intervals up to it."""
        for new in range(max(self._last + 1, number - self._count + 1), number + 1):
            offset = new % self._count * _FIELDS
            self._values[offset : offset + _FIELDS] = _EMPTY
        self._last = max(self._last, number)
        return number % self._count * _FIELDS

    def points(self, count: int | None = None) -> list[Point]:
        """Return the last intervals in order, without those before the first sample."""
        points: list[Point] = []
        count = min(count or self._count, self._last + 1)
        for number in range(self._last - count + 1, self._last + 1):
            at = number % self._count * _FIELDS
            ready, in_flight, scheduled, sent, done, seconds = self._values[at : at + _FIELDS]
            if not points and isnan(ready):
                continue
            rates = (sent / seconds, done / seconds) if seconds >= 1 else (None, None)
            levels = (None if isnan(level) else level for level in (ready, in_flight, scheduled))
            points.append(Point((self._last - number) * self._step, *levels, *rates))
        return points


class History:
    """The ring buffers of one queue."""

    def __init__(self, saved: HistoryState | None = None, now: float = 0.0) -> None:
        self._rings = {name: Ring(*size) for name, size in SPANS.items()}
        self._counted: tuple[float, int, int] | None = None  # when, sent, done
        for name, state in (saved or {}).items():
            if name in self._rings:
                self._rings[name].restore(*state, now)

    def state(self) -> HistoryState:
        """Return the state to save, for a restart."""
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
        """Return the recent rates of messages sent and deleted, per second."""
        recent = next(iter(self._rings.values())).points(2)
        points = [point for point in recent if point.sent_per_second is not None]
        if not points:
            return None, None
        sent = sum(point.sent_per_second or 0 for point in points) / len(points)
        return sent, sum(point.done_per_second or 0 for point in points) / len(points)
