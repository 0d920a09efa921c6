"""Creates the tables of a pipeline, and checks their types before each run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pillarbox.mailbox.data_directory import is_log
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import Graph, LogRef
from pillarbox.pipeline.schema import Column, quoted, shape_of
from pillarbox.spark.errors import SparkError
from pillarbox.spark.location import location_of
from pillarbox.spark.table import TableLog, table_at
from pillarbox.spark.table_files import create_table

#: Metadata of a column that is stored as text: its type in the pipeline. Tables written by older
#: versions or by other programs lack it.
_TYPE, _UNKNOWN = "pillarbox.type", "TEXT"
_STRING = "STRING"


def prepare(directory: str, log: LogRef) -> None:
    """Create the table of a log, or add the columns that its type has gained."""
    for problem in _output_problems(directory, log):
        raise PipelineError(problem)
    wanted = _schema_of(log)
    table = table_at(directory)
    if table is None:
        create_table(directory, wanted.json(), columns=wanted.fieldNames())
        return
    present = table.schema.names
    if added := [field.jsonValue() for field in wanted if field.name not in present]:
        table.add_columns(added)


def problems(graph: Graph, written: Collection[str], read: Collection[str]) -> Iterator[str]:
    """Yield the problems of the tables that a run would read or write."""
    for log in graph.logs:
        location = location_of(log.url)
        if location is not None and log.name in written:
            yield from _output_problems(location, log)
        elif location is not None and log.name in read:
            yield from _input_problems(location, log)


def _output_problems(location: str, log: LogRef) -> Iterator[str]:
    if is_log(location):
        yield (
            f"{location} holds a row log, as pipelines before 0.2 wrote them, but the log"
            f" {log.name!r} is now a Delta table. Move the directory away and let the pipeline"
            " write it again (reset its writer to earliest), or read the old one under another name"
        )
    table = table_at(location)
    if table is None:
        return
    yield from _foreign_files(table)
    stored, declared = _types_in(table), {x.name: x for x in shape_of(log.body_type).columns}
    for name, kind in stored.items():
        column = declared.get(name)
        if column is None or not _fits(column, kind):
            change = f"has {column.type.lower()} there" if column else "has no such field"
            yield (
                f"the table of the log {log.name!r} ({location}) has a column {name} of type"
                f" {kind.lower()}, but the type of its bodies {change}. Restore the field, or write"
                " to a new log"
            )
    for name, column in declared.items():
        if name not in stored and column.required and column.default is None:
            yield (
                f"the type of the log {log.name!r} has a new field {name}, which existing rows"
                f" ({location}) lack; give it a default"
            )


def _input_problems(location: str, log: LogRef) -> Iterator[str]:
    """Report fields without a matching column, which Spark would silently read as null."""
    table = table_at(location)
    if table is None:
        return
    yield from _foreign_files(table)
    stored = _types_in(table)
    for column in shape_of(log.body_type).columns:
        kind = stored.get(column.name)
        if kind is None or not _fits(column, kind):
            actual = f"has it as {kind.lower()}" if kind else "has no such column"
            yield (
                f"the bodies of the log {log.name!r} have a field {column.name} of type"
                f" {column.type.lower()}, but its table ({location}) {actual}. Declare the log as"
                " its writer does, or run its writer with this type first"
            )


def _foreign_files(table: TableLog) -> Iterator[str]:
    try:
        table.check(table.end_index)
    except SparkError as error:
        yield str(error)


def _schema_of(log: LogRef) -> Any:
    """Return the Spark schema of a log's table."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - behind an extra

    shape = shape_of(log.body_type)
    schema: Any = StructType.fromDDL(shape.stored_ddl)
    for field, column in zip(schema, shape.columns, strict=True):
        if column.stored_type == _STRING:
            field.metadata = {_TYPE: column.type}
    return schema


def _types_in(table: TableLog) -> dict[str, str]:
    """Return the type of each column of a table; for text columns, the type in the pipeline."""
    types = {}
    for field in table.spark_schema["fields"]:
        kind = _ddl(field["type"])
        types[field["name"]] = field["metadata"].get(_TYPE, _UNKNOWN) if kind == _STRING else kind
    return types


def _fits(column: Column, kind: str) -> bool:
    return kind == column.type or (kind == _UNKNOWN and column.stored_type == _STRING)


def _ddl(kind: Any) -> str:
    """Convert a type in Spark's JSON schema to DDL, as in `Column`."""
    if isinstance(kind, str):
        return {"long": "BIGINT", "integer": "INT"}.get(kind, kind.upper())
    if kind["type"] == "array":
        return f"ARRAY<{_ddl(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"MAP<{_ddl(kind['keyType'])}, {_ddl(kind['valueType'])}>"
    parts = (f"{quoted(each['name'])}: {_ddl(each['type'])}" for each in kind["fields"])
    return f"STRUCT<{', '.join(parts)}>"
