"""The interface of a history: the records that the data source reads, addressed by index.

A `History` is open on the driver and plans partitions. Its `Scan` is sent to the tasks and reads
them. There are classes for logs and stores on disk, typed logs, brokers, Redis and PostgreSQL;
`open_history` chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pillarbox.spark.columns import Columns, Rows
from pillarbox.spark.options import ReadOptions

INDEX = "index"


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
