"""Reading a history in tasks, and batch reads: one range of it, narrowed by pushed filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pillarbox.spark.columns import Columns
from pillarbox.spark.errors import DataLossError
from pillarbox.spark.filters import Narrowing
from pillarbox.spark.history import History, Source, open_history, position
from pillarbox.spark.location import without_secret
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.rows import Wanted, Words
from pillarbox.spark.table_history import TableHistory


class Reading(Protocol):
    """How tasks make record batches of what was planned. It is pickled, to go to tasks."""

    def narrowed(self, queues: Words, kinds: Words) -> Reading: ...
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

    def narrowed(self, queues: Words, kinds: Words) -> Scan:
        """The same, for these queues and kinds only."""
        return replace(self, wanted=self.wanted.narrowed(queues, kinds))

    def rows(self, part: Part) -> Iterator[Any]:
        """Record batches of the schema."""
        return map(self.columns.shaped, self.source.rows(part.pieces, self.wanted))


class BatchReader(DataSourceReader):
    """Reads what is there between two positions, in parts of whole segments or less."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._narrowing = Narrowing()
        # Open until the partitions are planned, which is soon, and in this process.
        self._history: History | None = open_history(options.url, options.storage)
        history = self._history
        self._mailbox = history.mailbox
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
        start, end = self._narrowing.range(history, self._start, self._end)
        size, least = self._options.partition_bytes, self._options.partitions_min
        parts = history.partitions(max(start, history.first), end, size, least)
        history.close()
        self._history = None
        return [Part(pieces) for pieces in parts] or [Part([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return self._scan.rows(partition)


class FilteringReader(BatchReader):
    """The same with push-down, for those who ask for it (option `pushFilters`).

    Spark 4.3 plans a Python source once for all uses of a DataFrame: a filter that is pushed by
    one use is then in force for the others. So a DataFrame with push-down may be used once.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        left = [each for each in filters if not self._narrowing.take(each, mailbox=self._mailbox)]
        # Here, because Spark pickles the reader for its tasks before it asks for partitions.
        self._scan = self._scan.narrowed(self._narrowing.queues, self._narrowing.kinds)
        return left
