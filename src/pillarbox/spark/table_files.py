"""The Parquet files of a typed log, their rows as the table has them, and what commits say."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pillarbox.extras import extra
from pillarbox.spark.errors import SparkError
from pillarbox.spark.files import Files
from pillarbox.spark.location import spark_path
from pillarbox.spark.steps import Step

FIRST, INDEX, TIME = "_first", "_index", "_time"
#: Before the names of what Pillarbox keeps in the metadata of a table and of its commits.
META = "pillarbox."


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file in the directory of a table, by its name there, that is not part of it yet."""

    name: str
    size_bytes: int
    count: int
    #: Columns that have a null, or may have one.
    with_nulls: frozenset[str] = frozenset()


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


def files_in(table: Any, path: str) -> Iterator[DataFile]:
    """The files of a Delta table, in any order."""
    import pyarrow as pa  # noqa: PLC0415 - behind an extra

    added = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    names = ("path", f"partition.{FIRST}", "num_records", "size_bytes", f"partition.{TIME}")
    for name, first, count, size, when in zip(*(added.get(n, ()) for n in names), strict=True):
        if first is None or count is None:
            raise SparkError(
                f"{path}/{name} was added to the table by another program, so its rows have no"
                " index; a log of a pipeline is written by the pipeline only. Restore the table to"
                " the version before"
            )
        yield DataFile(name, first, count, size, when)


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


def write_parquet(rows: Any, files: Files, folder: str, **options: str) -> list[NewFile]:
    """Have Spark write rows to a new folder of a table; the files that have a row, durably."""
    quiet = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    writer = rows.write.options(**{quiet: "false"} | options)
    writer.parquet(f"{spark_path(files.location)}/{folder}")
    names = [f"{folder}/{name}" for name in files.names(folder) if name.endswith(".parquet")]
    found = [each for name in names if (each := _look_at(files, name)).count]
    if found:
        files.sync_all(folder)
    else:
        files.remove(folder)
    return found


def _look_at(files: Files, name: str) -> NewFile:
    """A file that Spark has written, by its footer."""
    from pyarrow import parquet  # noqa: PLC0415 - behind an extra

    nulls = set()
    metadata = parquet.read_metadata(files.open(name))
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            known = column.statistics
            if known is None or not known.has_null_count or known.null_count:
                nulls.add(column.path_in_schema.partition(".")[0])
    return NewFile(name, files.size(name), metadata.num_rows, frozenset(nulls))


def numbered(first: int, when: datetime.datetime) -> dict[str, str]:
    """The partition of a file of a typed log, by the index of its first row and its time."""
    return {FIRST: str(first), TIME: when.strftime("%Y-%m-%d %H:%M:%S.%f")}


def addition(file: NewFile, values: Mapping[str, str], *, changes: bool = True) -> Any:
    """The action by which a commit adds a file to a partition of a table."""
    from deltalake.transaction import AddAction  # noqa: PLC0415 - behind an extra

    stats = json.dumps({"numRecords": file.count})
    now = time.time_ns() // 1_000_000
    return AddAction(file.name, file.size_bytes, dict(values), now, changes, stats)


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
