"""Opens the history that a URL names, and resolves positions in it."""

from __future__ import annotations

import time

from pillarbox.mailbox.url import opener_of
from pillarbox.spark.columns import LOG_SCHEMA, MAILBOX_SCHEMA
from pillarbox.spark.errors import OptionError
from pillarbox.spark.file_history import FileHistory
from pillarbox.spark.history import History
from pillarbox.spark.location import (
    data_directory_of,
    is_remote_store,
    location_of,
    without_secret,
)
from pillarbox.spark.options import time_ns
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
