"""The rows of a typed log between two indices, read by Spark's own Parquet reader.

Which files that are, the table tells. A row's index is that of its file's first row and its
place in the file, which Spark knows; nothing is computed that nobody asks for.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pillarbox.spark.errors import DataLossError, OptionError
from pillarbox.spark.location import location_of, spark_path
from pillarbox.spark.remote_store import give_settings
from pillarbox.spark.table import TableLog, table_at
from pillarbox.spark.table_files import INDEX, TIME, DataFile

#: With more, Spark lists them by a job; and the index of a row is looked up among so many.
_FILES_AT_ONCE = 32
_SCANS_MAX = 16
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def read(spark: Any, url: str, *, start: int = 0, end: int | None = None) -> DataFrame:
    """A typed log as a DataFrame: its own columns, `_index` and `_time`."""
    table = table_at(url)
    if table is None:
        raise OptionError(
            f"there is no typed log in {location_of(url) or url}; a log of rows or a mailbox is"
            " read with spark.read.format('pillarbox')"
        )
    give_settings(spark, table.path)
    return read_rows(spark, table, StructType.fromJson(table.spark_schema), start, end)


def read_rows(
    spark: Any, table: TableLog, schema: StructType, start: int, end: int | None
) -> DataFrame:
    """Columns of a table as they are stored, `_index` and `_time`."""
    until = table.end_index if end is None else end
    if start < until and start < table.first_index:
        raise DataLossError(table.path, start, table.first_index)
    files = table.files(start, until)
    size = max(_FILES_AT_ONCE, -(-len(files) // _SCANS_MAX))
    parts = [
        _read(spark, table.path, schema, files[at : at + size], start, until)
        for at in range(0, len(files), size)
    ]
    return functools.reduce(DataFrame.union, parts) if parts else _nothing(spark, schema)


def _read(
    spark: Any,
    location: str,
    schema: StructType,
    files: Sequence[DataFile],
    start: int,
    end: int,
) -> DataFrame:
    reader = spark.read.schema(schema).option("__globPaths__", "false")
    rows = reader.parquet(*(f"{spark_path(location)}/{each.name}" for each in files))
    # As text: each Column that Python makes is several calls of the JVM.
    index = f"{_by_file(files, [f'{each.first}L' for each in files])} + _metadata.row_index"
    when = _by_file(files, [f"timestamp_micros({_micros(each.time)})" for each in files])
    found: DataFrame = rows.selectExpr("*", f"{index} AS {INDEX}", f"{when} AS {TIME}")
    if start <= files[0].first and files[-1].end <= end:
        return found
    return found.where(f"{INDEX} >= {start} AND {INDEX} < {end}")


def _by_file(files: Sequence[DataFile], values: Sequence[str]) -> str:
    """The value of the file that a row is of, in SQL."""
    if len(files) == 1:
        return values[0]
    names = [each.name.rpartition("/")[2] for each in files]  # as Spark gives them
    pairs = ", ".join(f"'{name}', {value}" for name, value in zip(names, values, strict=True))
    return f"element_at(map({pairs}), _metadata.file_name)"


def _micros(time: datetime.datetime) -> int:
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def _nothing(spark: Any, schema: StructType) -> DataFrame:
    columns = [F.lit(None).cast(each.dataType).alias(each.name) for each in schema]
    columns += [F.lit(None).cast("bigint").alias(INDEX), F.lit(None).cast("timestamp").alias(TIME)]
    empty: DataFrame = spark.range(0).select(*columns)
    return empty
