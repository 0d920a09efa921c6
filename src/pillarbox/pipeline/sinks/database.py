"""Sinks that write to databases: the rows of a step and its hash are one transaction.

Works with any DB-API 2.0 driver (`sqlite3`, `psycopg`, ...). The table `pillarbox_steps` stores
the hashes. All rows pass through the Spark driver, so use this for results, not for bulk data.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.schema import METADATA, quoted
from pillarbox.pipeline.sinks.files import Sink
from pillarbox.spark.steps import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STEPS = "pillarbox_steps"
_BATCH_ROWS = 1000


def sqlite(path: str | os.PathLike[str], table: str, *, key: Sequence[str] = ()) -> Sink:
    """Write each step to a table of an SQLite file, once; with `key`, replace existing rows."""
    return database(lambda: sqlite3.connect(path), table, key=key)


def database(
    connect: Callable[[], Any], table: str, *, key: Sequence[str] = (), placeholder: str = "?"
) -> Sink:
    """Write each step to a table, once. The table must have the columns of the rows.

    With `key`, a row replaces the one with the same key (`ON CONFLICT`, as in SQLite and
    PostgreSQL), as the output of a stream with `mode="update"` requires. `placeholder` is that of
    the driver, such as `%s` for psycopg.
    """

    def write(batch: DataFrame, step: Step) -> None:
        names = [name for name in batch.columns if name not in METADATA]
        insert = _insert(table, names, key, placeholder)
        rows = (tuple(row) for row in batch.select(*map(quoted, names)).toLocalIterator())
        with contextlib.closing(connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {STEPS}"
                " (hash VARCHAR(64) PRIMARY KEY, processor VARCHAR(200), step BIGINT)"
            )
            if _is_recorded(cursor, step, placeholder):
                return
            while some := list(islice(rows, _BATCH_ROWS)):
                cursor.executemany(insert, some)
            marks = ", ".join([placeholder] * 3)
            record = (step.hash, step.processor, step.number)
            cursor.execute(f"INSERT INTO {STEPS} VALUES ({marks})", record)  # noqa: S608 - marks
            connection.commit()

    return write


def _is_recorded(cursor: Any, step: Step, placeholder: str) -> bool:
    query = f"SELECT 1 FROM {STEPS} WHERE hash = {placeholder}"  # noqa: S608 - a placeholder
    cursor.execute(query, (step.hash,))
    return cursor.fetchone() is not None


def _insert(table: str, names: Sequence[str], key: Sequence[str], placeholder: str) -> str:
    if missing := [name for name in key if name not in names]:
        raise PipelineError(f"the rows for {table!r} have no column {missing[0]!r} for their key")
    columns = ", ".join(_quoted(name) for name in names)
    marks = ", ".join([placeholder] * len(names))
    text = f"INSERT INTO {_quoted(table)} ({columns}) VALUES ({marks})"  # noqa: S608 - quoted
    if not key:
        return text
    rest = [f"{_quoted(name)} = excluded.{_quoted(name)}" for name in names if name not in key]
    change = f"DO UPDATE SET {', '.join(rest)}" if rest else "DO NOTHING"
    return f"{text} ON CONFLICT ({', '.join(map(_quoted, key))}) {change}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
