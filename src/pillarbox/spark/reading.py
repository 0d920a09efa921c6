"""Reading a history in tasks, and batch reads: one range of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pillarbox.spark.columns import Columns
from pillarbox.spark.errors import DataLossError
from pillarbox.spark.history import History, Source, Wanted
from pillarbox.spark.location import without_secret
from pillarbox.spark.open_history import open_history, position
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.table_history import TableHistory


class Reading(Protocol):
    """How tasks make record batches of what was planned. It is pickled, to go to tasks."""

    def rows(self, part: Part) -> Iterator[Any]: ...


def reading_of(history: History, options: ReadOptions, schema: Any) -> Reading:
    """The columns of a schema, read from a history."""
    if isinstance(history, TableHistory):
        return history.scan(schema)
    return Scan.of(history, options, schema)


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: list[Any]) -> None:
        self.pieces = pieces


@dataclass(frozen=True)
class Scan:
    """How the records of a history become rows. It is pickled, to go to tasks."""

    source: Source
    columns: Columns
    wanted: Wanted

    @classmethod
    def of(cls, history: History, options: ReadOptions, schema: Any) -> Scan:
        wanted = Wanted(kinds=options.kinds, fail_on_loss=options.fail_on_loss)
        return cls(history.source(), Columns(schema, mailbox=history.mailbox), wanted)

    def rows(self, part: Part) -> Iterator[Any]:
        """Record batches of the schema."""
        return map(self.columns.shaped, self.source.rows(part.pieces, self.wanted))


class BatchReader(DataSourceReader):
    """Reads what is there between two positions, in parts of whole segments or less."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        # Open until the partitions are planned, which is soon, and in this process.
        self._history: History | None = open_history(options.url, options.storage)
        history = self._history
        self._scan: Reading = reading_of(history, options, schema)
        self._start = position(history, "start", options.start)
        self._end = min(position(history, "end", options.end), history.end)
        if history.has_lost(history.offset(self._start)):
            if options.fail_on_loss:
                raise DataLossError(without_secret(options.url), self._start, history.first)
            self._start = history.first

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_history": None}

    def partitions(self) -> Sequence[InputPartition]:
        history = self._history or open_history(self._options.url, self._options.storage)
        size, least = self._options.partition_bytes, self._options.partitions_min
        parts = history.partitions(max(self._start, history.first), self._end, size, least)
        history.close()
        self._history = None
        return [Part(pieces) for pieces in parts] or [Part([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return self._scan.rows(partition)
