"""The interface of a history: the records that the data source reads, addressed by index.

A `History` is open on the driver and plans partitions. Its `Scan` is sent to the tasks and reads
them. There are classes for logs and stores on disk, typed logs, brokers, Redis and PostgreSQL;
`readers.open_history` chooses.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from pillarbox.spark.columns import Columns, Rows
from pillarbox.spark.options import ReadOptions

INDEX = "index"
TASK_BYTES_MIN = 8 << 20


class Scan(Protocol):
    """Reads planned pieces in tasks. Can be pickled; opens files and connections in the task."""

    def batches(self, pieces: Sequence[Any]) -> Iterator[Any]: ...


@dataclass(frozen=True)
class RowScan(ABC):
    """A scan of records or events that builds the columns of the read's schema."""

    options: ReadOptions
    columns: Columns

    def batches(self, pieces: Sequence[Any]) -> Iterator[Any]:
        return map(self.columns.shaped, self.rows(pieces))

    @abstractmethod
    def rows(self, pieces: Sequence[Any]) -> Iterator[Rows]: ...


class History(ABC):
    """The records from `first` up to `end` (exclusive), as of the last `refresh`.

    Indices are consecutive, as in a log, unless a class says otherwise.
    """

    first: int
    end: int

    @abstractmethod
    def refresh(self) -> None:
        """Find the newest records."""

    @abstractmethod
    def index_at_time(self, time_ns: int) -> int:
        """Return the index of the first record written at or after this time."""

    def offset(self, index: int) -> dict[str, int]:
        """Return an index as the offset that a stream's checkpoint stores."""
        return {INDEX: index}

    def has_lost(self, start: Mapping[str, int]) -> bool:
        """Return whether records at or after an offset are gone."""
        return start[INDEX] < self.first

    @abstractmethod
    def limit(self, start: int, end: int, bytes_max: int) -> int:
        """Return the end of a read of about `bytes_max` bytes, at least one record."""

    def after(self, start: int, rows: int) -> int:
        """Return the index after this many records from `start`."""
        return start + rows

    @abstractmethod
    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Any]]:
        """Split a range of indices into partitions of about `bytes_max` bytes, in order."""

    @abstractmethod
    def scan(self, options: ReadOptions, schema: Any) -> Scan:
        """Return the scan with which tasks read the columns of a schema."""

    def close(self) -> None:  # noqa: B027 - most classes hold nothing open
        """Close files and connections."""


class Outline:
    """Estimates the bytes before an index, to split a history into equal partitions.

    It has some marks (index, bytes before it), in order, and interpolates linearly between them.
    """

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
