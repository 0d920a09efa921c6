"""A history as a stream: offsets are indices, and a batch is the records between two of them.

Spark keeps one of these on the driver for as long as the query runs, and one in each task.
What a batch holds is fixed by its two offsets alone, so a batch that is done again is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pillarbox.spark.columns import Columns
from pillarbox.spark.errors import DataLossError
from pillarbox.spark.history import FileHistory, open_history, position
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.reading import Part, Scan

_INDEX = "index"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a history. An offset is the index of the first record that was not read yet."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._history: FileHistory | None = None
        self._last: int | None = None
        history = open_history(options.url)
        self._scan = Scan.of(
            history, options, Columns(schema, mailbox=history.place.store is not None)
        )
        history.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_history": None}  # open files stay where they were opened

    # -- on the driver ---------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        history = self._open()
        return {_INDEX: position(history, "start", self._options.start)}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        history = self._refreshed()
        first = self._from(history, start[_INDEX])
        end = history.end if self._last is None else min(history.end, self._last)
        if end <= first:
            return {_INDEX: max(start[_INDEX], first)}
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            end = history.limit(first, end, limit.max_bytes)
        if self._options.max_bytes is not None and isinstance(limit, ReadMaxRows):
            end = history.limit(first, end, self._options.max_bytes)
        return {_INDEX: end}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._refreshed().end

    def reportLatestOffset(self) -> dict[str, int]:
        return {_INDEX: self._open().end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start[_INDEX] >= end[_INDEX]:
            return []
        history = self._refreshed()
        first = self._from(history, start[_INDEX])
        options = self._options
        parts = history.partitions(
            first, end[_INDEX], options.partition_bytes, options.partitions_min
        )
        return [Part(pieces) for pieces in parts]

    def stop(self) -> None:
        if self._history is not None:
            self._history.close()
            self._history = None

    def _open(self) -> FileHistory:
        if self._history is None:
            self._history = open_history(self._options.url)
        return self._history

    def _refreshed(self) -> FileHistory:
        history = self._open()
        history.refresh()
        return history

    def _from(self, history: FileHistory, start: int) -> int:
        """Where to read from: `start`, unless that is gone and may be."""
        if start >= history.first:
            return start
        if self._options.fail_on_loss:
            raise DataLossError(self._options.url, start, history.first)
        return history.first

    # -- in tasks --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return self._scan.rows(partition)
