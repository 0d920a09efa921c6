"""A batch read: one range of a history, narrowed by the filters that Spark pushes down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pillarbox.spark.errors import DataLossError
from pillarbox.spark.filters import Narrowing
from pillarbox.spark.history import History, open_history, position
from pillarbox.spark.location import without_secret
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.reading import Part, Reading, reading_of


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
