"""Reads the rows of a typed log between two indices with Spark's own Parquet reader.

The table lists the files. The index of a row is the index of the first row of its file plus the
row's position in the file, which Spark provides; Spark computes it only if a query uses it.
"""

from __future__ import annotations

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

#: With more files, Spark starts a job to list them, and looking up a row's index gets slower.
_FILES_PER_SCAN = 32
_SCANS_MAX = 16


def read(spark: Any, url: str, *, start: int = 0, end: int | None = None) -> DataFrame:
    """Read a typed log as a DataFrame: its columns, `_index` and `_time`."""
    table = table_at(url)
    if table is None:
        raise OptionError(
            f"there is no typed log in {location_of(url) or url}; read a row log or a mailbox"
            " with spark.read.format('pillarbox')"
        )
    give_settings(spark, table.path)
    return read_rows(spark, table, StructType.fromJson(table.spark_schema), start, end)


def read_rows(
    spark: Any, table: TableLog, schema: StructType, start: int, end: int | None
) -> DataFrame:
    """Read columns of a table as they are stored, with `_index` and `_time`."""
    until = table.end_index if end is None else end
    if start < until and start < table.first_index:
        raise DataLossError(table.path, start, table.first_index)
    files = table.files(start, until)
    size = max(_FILES_PER_SCAN, -(-len(files) // _SCANS_MAX))
    parts = [
        _read(spark, table.path, schema, files[at : at + size], start, until)
        for at in range(0, len(files), size)
    ]
    return functools.reduce(DataFrame.union, parts) if parts else _empty(spark, schema)


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
    # As SQL text: each Column object built in Python costs several calls to the JVM.
    index = f"{_by_file(files, [f'{each.first}L' for each in files])} + _metadata.row_index"
    when = _by_file(files, [f"timestamp_micros({each.time_us})" for each in files])
    indexed: DataFrame = rows.selectExpr("*", f"{index} AS {INDEX}", f"{when} AS {TIME}")
    if start <= files[0].first and files[-1].end <= end:
        return indexed
    return indexed.where(f"{INDEX} >= {start} AND {INDEX} < {end}")


def _by_file(files: Sequence[DataFile], values: Sequence[str]) -> str:
    """Return an SQL expression for the value of the file that contains a row."""
    if len(files) == 1:
        return values[0]
    names = [each.name.rpartition("/")[2] for each in files]  # as in _metadata.file_name
    pairs = ", ".join(f"'{name}', {value}" for name, value in zip(names, values, strict=True))
    return f"element_at(map({pairs}), _metadata.file_name)"


def _empty(spark: Any, schema: StructType) -> DataFrame:
    columns = [F.lit(None).cast(each.dataType).alias(each.name) for each in schema]
    columns += [F.lit(None).cast("bigint").alias(INDEX), F.lit(None).cast("timestamp").alias(TIME)]
    empty: DataFrame = spark.range(0).select(*columns)
    return empty
