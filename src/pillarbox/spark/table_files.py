"""The Parquet files of a typed log, their rows as the table has them, and what commits say."""

from __future__ import annotations

import datetime
import json
import time
from dataclasses import dataclass
from typing import Any

from pillarbox.extras import extra
from pillarbox.spark.steps import Step

FIRST, INDEX, TIME = "_first", "_index", "_time"
#: Before the names of what Pillarbox keeps in the metadata of a table and of its commits.
META = "pillarbox."


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


def step_metadata(step: Step) -> dict[str, str]:
    """What the commit of a step says of it."""
    known = {
        "processor": step.writer,
        "id": step.processor,
        "generation": str(step.generation),
        "step": str(step.number),
        "hash": step.hash,
        "ends": json.dumps(step.ends),
    }
    return {f"{META}{name}": value for name, value in known.items()}


def deltalake() -> Any:
    with extra("spark", "a log of a pipeline"):
        import deltalake  # noqa: PLC0415 - behind an extra
        import deltalake.exceptions  # noqa: PLC0415
    return deltalake
