"""Opens the history that a URL names, and reads it as a batch (one range) or as a stream.

Spark keeps a `StreamReader` on the driver while the query runs, and one in each task. The two
offsets of a batch alone determine its records, so a repeated batch is the same.
"""

from __future__ import annotations

import time
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

from pillarbox.mailbox.url import opener_of
from pillarbox.spark.columns import LOG_SCHEMA, MAILBOX_SCHEMA
from pillarbox.spark.errors import DataLossError, OptionError
from pillarbox.spark.file_history import FileHistory
from pillarbox.spark.history import INDEX, History
from pillarbox.spark.location import (
    data_directory_of,
    is_remote_store,
    location_of,
    without_secret,
)
from pillarbox.spark.options import ReadOptions, time_ns
from pillarbox.spark.remote_store import Options
from pillarbox.spark.table import table_at
from pillarbox.spark.table_history import TableHistory, ddl_of


def open_history(url: str, options: Options | None = None) -> History:
    """Open the history that a URL names, with options for its remote store."""
    if (table := table_at(url, options or None)) is not None:
        return TableHistory(url, table)
    location = location_of(url)
    if location is not None and is_remote_store(location):
        raise OptionError(f"there is no typed log at {url}; check the URL")
    if location is not None:
        return FileHistory(url)
    scheme = url.partition(":")[0]
    if scheme in ("http", "https"):
        from pillarbox.spark.broker_history import BrokerHistory  # noqa: PLC0415

        return BrokerHistory(url)
    if scheme.startswith("redis"):
        opener_of(url)  # raises an error that names the extra, if it is not installed
        from pillarbox.spark.redis_history import RedisHistory  # noqa: PLC0415 - behind an extra

        return RedisHistory(url)
    if scheme in ("postgres", "postgresql"):
        opener_of(url)
        from pillarbox.spark.postgres_history import PostgresHistory  # noqa: PLC0415 - likewise

        return PostgresHistory(url)
    raise OptionError(
        f"{without_secret(url)} keeps no history to read; consume it instead, with option"
        " stagingPath"
    )


def schema_of(url: str, options: Options | None = None) -> str:
    """Return the default columns of a read."""
    if (table := table_at(url, options or None)) is not None:
        return ddl_of(table)
    mailbox = location_of(url) is None or data_directory_of(url).store is not None
    return MAILBOX_SCHEMA if mailbox else LOG_SCHEMA


def position(history: History, option: str, text: str) -> int:
    """Return the index of a position: earliest, latest, an index, or a time in ISO format."""
    if text == "earliest":
        return history.first
    if text == "latest":
        return history.end
    if text.isdecimal():
        return int(text)
    when = time_ns(option, text)
    return history.end if when > time.time_ns() else history.index_at_time(when)


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
