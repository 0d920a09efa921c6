"""Reading a history in tasks, and batch reads: one range of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pillarbox.spark.errors import DataLossError
from pillarbox.spark.history import History, Scan, Wanted
from pillarbox.spark.location import without_secret
from pillarbox.spark.open_history import open_history, position
from pillarbox.spark.options import ReadOptions


def scan_of(history: History, options: ReadOptions, schema: Any) -> Scan:
    return history.scan(schema, Wanted(options.kinds, options.fail_on_loss))


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: list[Any]) -> None:
        self.pieces = pieces


class BatchReader(DataSourceReader):
    """Reads what is there between two positions, in parts of whole segments or less."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        # Open until the partitions are planned, which is soon, and in this process.
        self._history: History | None = open_history(options.url, options.storage)
        history = self._history
        self._scan = scan_of(history, options, schema)
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
        return self._scan.batches(partition.pieces)
