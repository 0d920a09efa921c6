"""What the data source reads: a history, addressed by index.

A `History` is open on the driver, and plans. Its `Scan` goes to the tasks, and reads what was
planned. There is one for logs and stores on disk, one for typed logs, and one each for brokers,
Redis and PostgreSQL; `open_history` chooses.
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
    """Reads what was planned, in tasks. Can be pickled, and opens files only where it runs."""

    def batches(self, pieces: Sequence[Any]) -> Iterator[Any]: ...


@dataclass(frozen=True)
class RowScan(ABC):
    """A scan of records or events, whose columns are made as the schema of the read asks."""

    options: ReadOptions
    columns: Columns

    def batches(self, pieces: Sequence[Any]) -> Iterator[Any]:
        return map(self.columns.shaped, self.rows(pieces))

    @abstractmethod
    def rows(self, pieces: Sequence[Any]) -> Iterator[Rows]: ...


class History(ABC):
    """What was written so far, from `first` up to `end`, as of the last `refresh`.

    Indices count the records one by one, as in a log, unless a class says otherwise.
    """

    first: int
    end: int

    @abstractmethod
    def refresh(self) -> None:
        """Find the newest records."""

    @abstractmethod
    def index_at_time(self, time_ns: int) -> int:
        """The first record that was written then or later."""

    def offset(self, index: int) -> dict[str, int]:
        """An index as a stream's checkpoint keeps it."""
        return {INDEX: index}

    def has_lost(self, start: Mapping[str, int]) -> bool:
        """Whether records at or after such an offset are gone."""
        return start[INDEX] < self.first

    @abstractmethod
    def limit(self, start: int, end: int, bytes_max: int) -> int:
        """The end index for a read of about `bytes_max` bytes from `start`; at least one record."""

    def after(self, start: int, rows: int) -> int:
        """The index after this many records, from `start` on."""
        return start + rows

    @abstractmethod
    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Any]]:
        """Split a range of indices into partitions of about `bytes_max` bytes, in order."""

    @abstractmethod
    def scan(self, options: ReadOptions, schema: Any) -> Scan:
        """How tasks read the columns of a schema."""

    def close(self) -> None:  # noqa: B027 - nothing is held open, unless a class says otherwise
        """Close files and connections."""
