"""Reads a history as a batch (one range) or as a stream.

Spark keeps a `StreamReader` on the driver while the query runs, and one in each task. The two
offsets of a batch alone determine its records, so a repeated batch is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
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


def parts_of(history: History, start: int, end: int, options: ReadOptions) -> list[Part]:
    """Plan the tasks that read a range."""
    size, least = options.partition_bytes, options.partitions_min
    return [Part(pieces) for pieces in history.partitions(start, end, size, least)]


def _first_index(history: History, start: Mapping[str, int], options: ReadOptions) -> int:
    """Return the index to read from: `start`, or `first` if records may be lost."""
    if not history.has_lost(start):
        return start[INDEX]
    if options.fail_on_loss:
        raise DataLossError(without_secret(options.url), start[INDEX], history.first)
    return history.first


class BatchReader(DataSourceReader):
    """Reads the records between two positions."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        with closing(open_history(options.url, options.storage)) as history:
            self._scan = history.scan(options, schema)
            start = history.offset(position(history, "start", options.start))
            end = min(position(history, "end", options.end), history.end)
            first = max(_first_index(history, start, options), history.first)
            self._parts = parts_of(history, first, end, options)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parts": []}  # a task is given its own

    def partitions(self) -> Sequence[InputPartition]:
        return self._parts or [Part([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return self._scan.batches(partition.pieces)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a history. An offset is the index of the first record not read yet."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._history: History | None = None
        self._last: int | None = None
        with closing(open_history(options.url, options.storage)) as history:
            self._scan = history.scan(options, schema)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_history": None}  # open files can't be pickled

    # -- on the driver ---------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        history = self._open()
        return history.offset(position(history, "start", self._options.start))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        history = self._refreshed()
        first = _first_index(history, start, self._options)
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
        first = _first_index(history, start, self._options)
        return parts_of(history, first, end[INDEX], self._options)

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

    # -- in tasks --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return self._scan.batches(partition.pieces)
