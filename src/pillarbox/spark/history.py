"""The seam between the data source and what it reads: a history, addressed by index.

A `History` is open on the driver, and plans. Its `source` goes to the tasks, and reads what was
planned. There is one for logs and stores on disk, one for brokers, and one for Redis.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pillarbox.mailbox.url import opener_of
from pillarbox.spark.columns import LOG_SCHEMA, MAILBOX_SCHEMA
from pillarbox.spark.errors import OptionError
from pillarbox.spark.file_history import FileHistory
from pillarbox.spark.location import is_object_store, location_of, place_of
from pillarbox.spark.object_store import Options, options_of
from pillarbox.spark.options import time_ns
from pillarbox.spark.rows import Rows, Wanted
from pillarbox.spark.table import is_table
from pillarbox.spark.table_history import TableHistory


class Source(Protocol):
    """What a task needs to read; it can be pickled, and opens things only where it runs."""

    def rows(self, pieces: Sequence[Any], wanted: Wanted) -> Iterator[Rows]: ...


class History(Protocol):
    """What was written so far, from `first` up to `end`."""

    #: Whether its records are the events of mailboxes.
    mailbox: bool

    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    def refresh(self) -> None:
        """Look whether it has grown."""

    def index_at_time(self, time_ns: int) -> int:
        """The first record that was written then or later."""

    def offset(self, index: int) -> dict[str, int]:
        """An index as a stream's checkpoint keeps it."""

    def has_lost(self, start: Mapping[str, int]) -> bool:
        """Whether records at or after such an offset are gone."""

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        """Where to stop so that about `bytes_max` are read from `start` on; some always are."""

    def after(self, start: int, rows: int) -> int:
        """The index before which there are so many records, from `start` on."""

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Any]]:
        """What is between two indices, in parts of about `bytes_max` bytes, in order."""

    def source(self) -> Source: ...
    def close(self) -> None: ...


def open_history(url: str, options: Options | None = None) -> History:
    """The history that a URL names; options say how its object store is reached."""
    location = location_of(url)
    if location is not None:
        table = _table_at(url, location, options)
        if table is None and is_object_store(location):
            raise OptionError(f"there is no typed log at {url}; check the URL")
        return table or FileHistory(url)
    scheme = url.partition(":")[0]
    if scheme in ("http", "https"):
        from pillarbox.spark.broker_history import BrokerHistory  # noqa: PLC0415

        return BrokerHistory(url)
    if scheme.startswith("redis"):
        opener_of(url)  # which says what to install, if need be
        from pillarbox.spark.redis_history import RedisHistory  # noqa: PLC0415 - behind an extra

        return RedisHistory(url)
    raise OptionError(
        f"{url} keeps no history that could be read; consume it instead, with option stagingPath"
    )


def _table_at(url: str, location: str, options: Options | None) -> TableHistory | None:
    options = options or options_of(location)
    return TableHistory(url, location, options) if is_table(location, options) else None


def schema_of(url: str, options: Options | None = None) -> str:
    """The columns that a read has unless it asks for others."""
    location = location_of(url)
    if location is not None and (table := _table_at(url, location, options)) is not None:
        return table.ddl()
    mailbox = location is None or place_of(url).store is not None
    return MAILBOX_SCHEMA if mailbox else LOG_SCHEMA


def position(history: History, option: str, text: str) -> int:
    """The index that an option names: earliest, latest, an index, or a time in ISO format."""
    if text == "earliest":
        return history.first
    if text == "latest":
        return history.end
    if text.isdigit():
        return int(text)
    when = time_ns(option, text)
    return history.end if when > time.time_ns() else history.index_at_time(when)
