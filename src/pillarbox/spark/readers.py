"""Reads a history as a batch (one range) or as a stream.

Spark keeps a `StreamReader` on the driver while the query runs, and one in each task. The two
offsets of a batch alone determine its records, so a repeated batch is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pillarbox.spark.errors import DataLossError
from pillarbox.spark.history import INDEX, History
from pillarbox.spark.location import without_secret
from pillarbox.spark.open_history import open_history, position
from pillarbox.spark.options import ReadOptions


class Part(InputPartition):
    """The pieces that one task reads."""

    def __init__(self, pieces: list[Any]) -> None:
        self.pieces = pieces


class BatchReader(DataSourceReader):
    """Reads the records between two positions."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        # Open only until the partitions are planned, in this process.
        self._history: History | None = open_history(options.url, options.storage)
        history = self._history
        self._scan = history.scan(options, schema)
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


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a history. An offset is the index of the first record not read yet."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._history: History | None = None
        self._last: int | None = None
        history = open_history(options.url, options.storage)
        self._scan = history.scan(options, schema)
        history.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_history": None}  # open files can't be pickled

    # -- on the driver ---------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        history = self._open()
        return history.offset(position(history, "start", self._options.start))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        history = self._refreshed()
        first = self._from(history, start)
        end = history.end if self._last is None else min(history.end, self._last)
        if end <= first:
            return start if first == start[INDEX] else history.offset(first)
        if isinstance(limit, ReadMaxRows):
            end = min(end, history.after(first, limit.max_rows))
        if isinstance(limit, ReadMaxBytes):
            end = history.limit(first, end, limit.max_bytes)
        if self._options.max_bytes is not None and isinstance(limit, ReadMaxRows):
            end = history.limit(first, end, self._options.max_bytes)
        return history.offset(end)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._refreshed().end

    def reportLatestOffset(self) -> dict[str, int]:
        history = self._open()
        return history.offset(history.end)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start[INDEX] >= end[INDEX]:
            return []
        history = self._refreshed()
        first = self._from(history, start)
        options = self._options
        parts = history.partitions(
            first, end[INDEX], options.partition_bytes, options.partitions_min
        )
        return [Part(pieces) for pieces in parts]

    def stop(self) -> None:
        if self._history is not None:
            self._history.close()
            self._history = None

    def _open(self) -> History:
        if self._history is None:
            self._history = open_history(self._options.url, self._options.storage)
        return self._history

    def _refreshed(self) -> History:
        history = self._open()
        history.refresh()
        return history

    def _from(self, history: History, start: dict[str, int]) -> int:
        """Return the index to read from: `start`, or `first` if records may be lost."""
        if not history.has_lost(start):
            return start[INDEX]
        if self._options.fail_on_loss:
            raise DataLossError(without_secret(self._options.url), start[INDEX], history.first)
        return history.first

    # -- in tasks --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return self._scan.batches(partition.pieces)
