"""What the data source reads: a history, addressed by index.

A `History` is open on the driver, and plans. Its `source` goes to the tasks, and reads what was
planned. There is one for logs and stores on disk, one for typed logs, and one each for brokers,
Redis and PostgreSQL; `open_history` chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

INDEX = "index"
Words = frozenset[str] | None  # None: all of them


@dataclass(frozen=True)
class Wanted:
    """Which rows a read is about, and whether it can go on without those that are gone."""

    queues: Words = None
    kinds: Words = None
    fail_on_loss: bool = True


class Rows(Protocol):
    """Some records, or events of a mailbox, in order, as columns that are made when asked for."""

    def __len__(self) -> int: ...
    def column(self, name: str) -> Any:
        """An Arrow array, as long as there are rows; None if nothing is known of this."""


class Source(Protocol):
    """What a task needs to read; it can be pickled, and opens things only where it runs."""

    def rows(self, pieces: Sequence[Any], wanted: Wanted) -> Iterator[Rows]: ...


class History(ABC):
    """What was written so far, from `first` up to `end`, as of the last `refresh`.

    Indices count the records one by one, as in a log, unless a class says otherwise.
    """

    #: Whether its records are the events of mailboxes.
    mailbox = True
    first: int
    end: int

    @abstractmethod
    def refresh(self) -> None:
        """Look whether it has grown."""

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
        """Where to stop so that about `bytes_max` are read from `start` on; some always are."""

    def after(self, start: int, rows: int) -> int:
        """The index before which there are so many records, from `start` on."""
        return start + rows

    @abstractmethod
    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Any]]:
        """What is between two indices, in parts of about `bytes_max` bytes, in order."""

    @abstractmethod
    def source(self) -> Source: ...

    def close(self) -> None:  # noqa: B027 - nothing is held open, unless a class says otherwise
        """Let go of what is open."""
