"""Where the bytes of a history lie, roughly: enough to cut it into parts of equal size.

An outline is a line through some marks (index, bytes before it). Between two marks the records
count as equally long, so that what it says is about right, and the parts are whole in any case.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

WORTH_A_TASK_BYTES = 8 << 20


class Outline:
    """Marks in order; the first and the last one are the ends of what it knows."""

    def __init__(self, marks: Sequence[tuple[int, int]]) -> None:
        self._indices = [index for index, _ in marks]
        self._bytes = [size for _, size in marks]

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        """Where to stop so that about `bytes_max` are read from `start` on; some always are."""
        stop = _along(self._bytes, self._indices, self._bytes_before(start) + bytes_max)
        return min(end, max(start + 1, int(stop)))

    def ranges(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[tuple[int, int]]:
        """From `start` up to `end` in parts of the same size, of at most about `bytes_max`.

        Unless a number is given, there is one for each processor, if that is worth its while.
        """
        if start >= end:
            return []
        first = self._bytes_before(start)
        total = self._bytes_before(end) - first
        if count_min is None:
            count_min = min(os.cpu_count() or 1, 1 + int(total) // WORTH_A_TASK_BYTES)
        count = min(end - start, max(-(-int(total) // bytes_max), count_min))
        cuts = [
            int(_along(self._bytes, self._indices, first + total * part / count))
            for part in range(1, count)
        ]
        bounds = [start, *sorted({cut for cut in cuts if start < cut < end}), end]
        return list(pairwise(bounds))

    def _bytes_before(self, index: int) -> float:
        return _along(self._indices, self._bytes, index)


def _along(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """The line's y at `x`; at its ends it goes on level."""
    place = bisect_right(xs, x)
    if place == 0 or place == len(xs):
        return ys[place - (place > 0)] if ys else 0.0
    x0, x1, y0, y1 = xs[place - 1], xs[place], ys[place - 1], ys[place]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
