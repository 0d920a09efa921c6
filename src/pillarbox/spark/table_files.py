"""The Parquet files of a typed log, and their rows as the table has them."""

from __future__ import annotations

import datetime
import json
import time
from dataclasses import dataclass
from typing import Any

FIRST, INDEX, TIME = "_first", "_index", "_time"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file in the directory of a table; its name is relative to that."""

    name: str
    size_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the table, by its name there, and the indices of its rows."""

    name: str
    first: int
    count: int
    size_bytes: int
    time: datetime.datetime

    @property
    def end(self) -> int:
        return self.first + self.count


def conformed(rows: Any, schema: Any) -> Any:
    """Rows of a file as a table has them: older files lack columns, Spark's times are finer."""
    import pyarrow as pa  # noqa: PLC0415 - behind an extra

    columns = [
        rows.column(each.name).cast(each.type, safe=False)
        if each.name in rows.schema.names
        else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def addition(file: NewFile, first: int, when: datetime.datetime, *, changes: bool) -> Any:
    """The action by which a commit adds a file whose first row has the index `first`."""
    from deltalake.transaction import AddAction  # noqa: PLC0415 - behind an extra

    values = {FIRST: str(first), TIME: when.strftime("%Y-%m-%d %H:%M:%S.%f")}
    stats = json.dumps({"numRecords": file.count})
    now = time.time_ns() // 1_000_000
    return AddAction(file.name, file.size_bytes, values, now, changes, stats)
