"""Creates typed logs; their Parquet files, and the actions and metadata of their commits."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pillarbox.extras import extra
from pillarbox.spark.errors import SparkError
from pillarbox.spark.files import Files, files_at
from pillarbox.spark.location import spark_path
from pillarbox.spark.remote_store import delta_options, options_of
from pillarbox.spark.steps import Step

FIRST, INDEX, TIME = "_first", "_index", "_time"
PARTITIONED = [FIRST, TIME]
LOG = "_delta_log"
CHECKPOINT_COMMITS = 25
#: How long files stay on disk after they are removed from the table: readers may still use them.
KEPT_HOURS = 6
#: The prefix of Pillarbox's names in the metadata of a table and of its commits.
META = "pillarbox."
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def create_table(location: str, schema: Any, *, columns: Sequence[str]) -> None:
    """Create an empty typed log; `schema` is the Spark schema of its rows as JSON."""
    lake = deltalake()
    fields = json.loads(schema)
    for name, kind in ((FIRST, "long"), (TIME, "timestamp")):
        fields["fields"].append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    lake.DeltaTable.create(
        location,
        lake.Schema.from_json(json.dumps(fields)),
        mode="ignore",
        partition_by=PARTITIONED,
        description=json.dumps(list(columns)),
        configuration={
            # Only `TableLog` writes checkpoints and removes commits: Delta does not sync them.
            "delta.checkpointInterval": "1000000000",
            "delta.enableExpiredLogCleanup": "false",
            # Checkpoints list removed files for this long: until `vacuum` has deleted them.
            "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS + 1} hours",
        },
        storage_options=delta_options(options_of(location)),
    )
    files_at(location).sync_all(LOG)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file in the directory of a table that is not committed yet."""

    name: str
    size_bytes: int
    count: int
    #: The paths of columns that may contain nulls: `a.b` is in column `a`, or its name has a dot.
    with_nulls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DataFile:
    """A committed Parquet file of a table, and the indices of its rows."""

    name: str
    first: int
    count: int
    size_bytes: int
    time: datetime.datetime

    @property
    def end(self) -> int:
        return self.first + self.count

    @property
    def time_us(self) -> int:
        """The time in microseconds since 1970, exactly."""
        return (self.time - _EPOCH) // datetime.timedelta(microseconds=1)


def files_in(table: Any, path: str) -> Iterator[DataFile]:
    """Yield the files of a Delta table, in any order."""
    import pyarrow as pa  # noqa: PLC0415 - behind an extra

    added = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    names = ("path", f"partition.{FIRST}", "num_records", "size_bytes", f"partition.{TIME}")
    for name, first, count, size, when in zip(*(added.get(n, ()) for n in names), strict=True):
        if first is None or count is None:
            raise SparkError(
                f"{path}/{name} was added to the table by another program, so its rows have no"
                " index. Only the pipeline may write its logs; restore an earlier version of the"
                " table"
            )
        yield DataFile(name, first, count, size, when)


def conformed(rows: Any, schema: Any) -> Any:
    """Convert the rows of a file to the table's schema.

    Older files lack columns, and Spark's timestamps are more precise.
    """
    import pyarrow as pa  # noqa: PLC0415 - behind an extra

    columns = [
        rows.column(each.name).cast(each.type, safe=False)
        if each.name in rows.schema.names
        else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def parquet_file(files: Files, name: str) -> Any:
    """Open a Parquet file to read it as Arrow.

    Spark's own timestamps (INT96) become microseconds: in nanoseconds, the default, the years
    before 1677 and after 2262 overflow and become other years.
    """
    from pyarrow import parquet  # noqa: PLC0415 - behind an extra

    return parquet.ParquetFile(files.open(name), coerce_int96_timestamp_unit="us")


def write_arrow(files: Files, name: str, schema: Any, tables: Iterable[Any]) -> NewFile:
    """Write Arrow tables to one file."""
    from pyarrow import parquet  # noqa: PLC0415 - behind an extra

    count = 0
    with files.writing(name) as sink, parquet.ParquetWriter(sink, schema) as writer:
        for rows in tables:
            writer.write_table(rows, row_group_size=1 << 20)
            count += rows.num_rows
    return NewFile(name, files.size(name), count)


def write_parquet(rows: Any, files: Files, folder: str, **options: str) -> list[NewFile]:
    """Let Spark write rows durably to a new folder; return the files that are not empty."""
    success_marker = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    writer = rows.write.options(**{success_marker: "false"} | options)
    writer.parquet(f"{spark_path(files.location)}/{folder}")
    names = [f"{folder}/{name}" for name in files.names(folder) if name.endswith(".parquet")]
    written = [each for name in names if (each := _read_footer(files, name)).count]
    if written:
        files.sync_all(folder)
    else:
        files.remove(folder)
    return written


def _read_footer(files: Files, name: str) -> NewFile:
    """Return the size, row count and null statistics of a file that Spark has written."""
    from pyarrow import parquet  # noqa: PLC0415 - behind an extra

    nulls = set()
    metadata = parquet.read_metadata(files.open(name))
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for position in range(group.num_columns):
            column = group.column(position)
            stats = column.statistics
            if stats is None or not stats.has_null_count or stats.null_count:
                nulls.add(column.path_in_schema)
    return NewFile(name, files.size(name), metadata.num_rows, frozenset(nulls))


def numbered(first: int, when: datetime.datetime) -> dict[str, str]:
    """Return the partition values of a file: the index of its first row and its time."""
    return {FIRST: str(first), TIME: when.strftime("%Y-%m-%d %H:%M:%S.%f")}


def addition(file: NewFile, values: Mapping[str, str], *, changes: bool = True) -> Any:
    """Return the Delta action that adds a file to a partition of a table."""
    from deltalake.transaction import AddAction  # noqa: PLC0415 - behind an extra

    stats = json.dumps({"numRecords": file.count})
    now = time.time_ns() // 1_000_000
    return AddAction(file.name, file.size_bytes, dict(values), now, changes, stats)


def step_metadata(step: Step) -> dict[str, str]:
    """Return the commit metadata of a step."""
    fields = {
        "processor": step.writer,
        "id": step.processor,
        "generation": str(step.generation),
        "step": str(step.number),
        "hash": step.hash,
        "ends": json.dumps(step.ends),
    }
    return {f"{META}{name}": value for name, value in fields.items()}


def own_metadata(commit: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a commit that Pillarbox wrote, without the prefix."""
    return {k.removeprefix(META): v for k, v in commit.items() if k.startswith(META)}


def no_hooks() -> Any:
    """Let Delta write no checkpoint and remove no commits: it does not sync them to disk."""
    return deltalake().PostCommitHookProperties(False, False)


def vacuum_table(table: Any, hours: int, *, dry_run: bool = False) -> list[str]:
    """Delete files that left a Delta table this many hours ago; return their names."""
    names: list[str] = table.vacuum(
        hours,
        dry_run=dry_run,
        enforce_retention_duration=False,
        post_commithook_properties=no_hooks(),
    )
    return names


def remove_empty_folders(files: Files, removed: Sequence[str]) -> None:
    """Remove the folders of removed files without data: Spark left a checksum beside each."""
    folders = {name.partition("/")[0] for name in removed if "/" in name}
    for folder in folders.intersection(files.names()):
        if not any(name.endswith(".parquet") for name in files.names(folder)):
            files.remove(folder)


def deltalake() -> Any:
    with extra("spark", "a log of a pipeline"):
        import deltalake  # noqa: PLC0415 - behind an extra
        import deltalake.exceptions  # noqa: PLC0415
    return deltalake
