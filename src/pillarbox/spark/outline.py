"""Estimates the bytes before an index of a history, to split it into equal partitions.

An outline has some marks (index, bytes before it), and interpolates linearly between them.
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
        """Return the end of a read of about `bytes_max` bytes, at least one record."""
        stop = _interpolate(self._bytes, self._indices, self._bytes_before(start) + bytes_max)
        return min(end, max(start + 1, int(stop)))

    def ranges(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[tuple[int, int]]:
        """Split `start` to `end` into equal ranges of at most about `bytes_max` bytes.

        Without `count_min`, there is one per CPU, if each has at least TASK_BYTES_MIN.
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
    """Interpolate y at `x`; beyond the ends, return the y of the nearest point."""
    after = bisect_right(xs, x)
    if after == 0 or after == len(xs):
        return ys[after - (after > 0)] if ys else 0.0
    x0, x1, y0, y1 = xs[after - 1], xs[after], ys[after - 1], ys[after]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
