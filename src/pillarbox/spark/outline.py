"""Estimates how many bytes lie before an index of a history, to cut it into equal partitions.

An outline has some marks (index, bytes before it) and interpolates between them: records between
two marks count as equally long.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

TASK_BYTES_MIN = 8 << 20


class Outline:
    """Marks in the order of their indices."""

    def __init__(self, marks: Sequence[tuple[int, int]]) -> None:
        self._indices = [index for index, _ in marks]
        self._bytes = [size for _, size in marks]

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        """The end index for a read of about `bytes_max` bytes from `start`; at least one record."""
        stop = _interpolate(self._bytes, self._indices, self._bytes_before(start) + bytes_max)
        return min(end, max(start + 1, int(stop)))

    def ranges(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[tuple[int, int]]:
        """Split `start` to `end` into equal ranges of at most about `bytes_max` bytes.

        Without `count_min`, there is one for each CPU, if each has at least TASK_BYTES_MIN.
        """
        if start >= end:
            return []
        first = self._bytes_before(start)
        total = self._bytes_before(end) - first
        if count_min is None:
            count_min = min(os.cpu_count() or 1, 1 + int(total) // TASK_BYTES_MIN)
        count = min(end - start, max(-(-int(total) // bytes_max), count_min))
        cuts = [
            int(_interpolate(self._bytes, self._indices, first + total * part / count))
            for part in range(1, count)
        ]
        bounds = [start, *sorted({cut for cut in cuts if start < cut < end}), end]
        return list(pairwise(bounds))

    def _bytes_before(self, index: int) -> float:
        return _interpolate(self._indices, self._bytes, index)


def _interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """The y at `x` on the line through the points; beyond its ends, that of the nearest one."""
    place = bisect_right(xs, x)
    if place == 0 or place == len(xs):
        return ys[place - (place > 0)] if ys else 0.0
    x0, x1, y0, y1 = xs[place - 1], xs[place], ys[place - 1], ys[place]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
