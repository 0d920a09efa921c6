"""The tables of a pipeline: created for their types, and compared with them before each run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pillarbox.mailbox.data_directory import is_log
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import Graph, LogRef
from pillarbox.pipeline.schema import Column, quoted, shape_of
from pillarbox.spark.location import location_of
from pillarbox.spark.table import TableLog, create_table, table_at

#: In the metadata of a column that is kept as text: what it is to the pipeline. Of a column of
#: an older table, or of another program's, nobody knows.
_TYPE, _UNKNOWN = "pillarbox.type", "TEXT"
_STRING = "STRING"


def prepare(directory: str, log: LogRef) -> None:
    """Create the table of a log, or bring it up to the type that the log has now."""
    for problem in _of_output(directory, log):
        raise PipelineError(problem)
    wanted = _schema_of(log)
    table = table_at(directory)
    if table is None:
        create_table(directory, wanted.json(), columns=wanted.fieldNames())
        return
    known = table.schema.names
    if added := [field.jsonValue() for field in wanted if field.name not in known]:
        table.add_columns(added)


def problems(graph: Graph, written: Collection[str], read: Collection[str]) -> Iterator[str]:
    """What is wrong with the tables of a pipeline, some of which are about to be written."""
    for log in graph.logs:
        location = location_of(log.url)
        if location is not None and log.name in written:
            yield from _of_output(location, log)
        elif location is not None and log.name in read:
            yield from _of_input(location, log)


def _of_output(location: str, log: LogRef) -> Iterator[str]:
    if is_log(location):
        yield (
            f"{location} holds a log of rows, as pipelines before 0.2 wrote them, but the log"
            f" {log.name!r} is a Delta table now. Move the directory away and let the pipeline"
            " write it again (reset its writer to earliest), or read the old one under another name"
        )
    table = table_at(location)
    if table is None:
        return
    there, here = _types_in(table), {x.name: x for x in shape_of(log.body_type).columns}
    for name, kind in there.items():
        if name not in here or not _fits(here[name], kind):
            change = f"has {here[name].type.lower()} there" if name in here else "has no such field"
            yield (
                f"the table of the log {log.name!r} ({location}) has a column {name} of type"
                f" {kind.lower()}, but the type of its bodies {change}. Restore the field, or write"
                " to a new log"
            )
    for name, column in here.items():
        if name not in there and column.required and column.default is None:
            yield (
                f"the type of the log {log.name!r} has a new field {name}, which the rows that are"
                f" there ({location}) lack; give it a default"
            )


def _of_input(location: str, log: LogRef) -> Iterator[str]:
    """A column that is not there would be read as null, without a word."""
    table = table_at(location)
    if table is None:
        return
    there = _types_in(table)
    for column in shape_of(log.body_type).columns:
        kind = there.get(column.name)
        if kind is None or not _fits(column, kind):
            found = f"has it as {kind.lower()}" if kind else "has no such column"
            yield (
                f"the bodies of the log {log.name!r} have a field {column.name} of type"
                f" {column.type.lower()}, but its table ({location}) {found}. Declare the log as"
                " its writer does, or run its writer with this type first"
            )


def _schema_of(log: LogRef) -> Any:
    """The schema of a log's table, as Spark has it."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - behind an extra

    shape = shape_of(log.body_type)
    schema: Any = StructType.fromDDL(shape.stored_ddl)
    for field, column in zip(schema, shape.columns, strict=True):
        if column.stored_type == _STRING:
            field.metadata = {_TYPE: column.type}
    return schema


def _types_in(table: TableLog) -> dict[str, str]:
    """The type of each column of a table; of what is kept as text, what it is to the pipeline."""
    found = {}
    for field in table.spark_schema["fields"]:
        kind = _ddl(field["type"])
        known = field["metadata"].get(_TYPE, _UNKNOWN) if kind == _STRING else kind
        found[field["name"]] = known
    return found


def _fits(column: Column, kind: str) -> bool:
    return kind == column.type or (kind == _UNKNOWN and column.stored_type == _STRING)


def _ddl(kind: Any) -> str:
    """A type of Spark's schema in JSON as `Column` has it."""
    if isinstance(kind, str):
        return {"long": "BIGINT", "integer": "INT"}.get(kind, kind.upper())
    if kind["type"] == "array":
        return f"ARRAY<{_ddl(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"MAP<{_ddl(kind['keyType'])}, {_ddl(kind['valueType'])}>"
    parts = (f"{quoted(each['name'])}: {_ddl(each['type'])}" for each in kind["fields"])
    return f"STRUCT<{', '.join(parts)}>"
