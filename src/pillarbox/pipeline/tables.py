"""The tables of a pipeline: created for their types, and compared with them at each start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructType

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import LogRef
from pillarbox.pipeline.schema import shape_of
from pillarbox.spark.location import is_log
from pillarbox.spark.table import TableLog, create_table, is_table


def prepare(directory: str, log: LogRef) -> None:
    """Create the table of a log, or bring it up to the type that the log has now."""
    wanted: Any = StructType.fromDDL(shape_of(log.body_type).stored_ddl)
    if is_table(directory):
        _evolve(TableLog(directory), log, wanted)
        return
    if is_log(directory):
        raise PipelineError(
            f"{directory} holds a log of rows, as pipelines before 0.2 wrote them, but the log"
            f" {log.name!r} is a Delta table now. Move the directory away and let the pipeline"
            " write it anew (reset its writer to earliest), or read the old one under another name"
        )
    create_table(directory, wanted.json(), columns=wanted.fieldNames())


def _evolve(table: TableLog, log: LogRef, wanted: Any) -> None:
    there = _types(StructType.fromJson(table.spark_schema))
    here = _types(wanted)
    fields = {each.name: each for each in shape_of(log.body_type).columns}
    for name, kind in there.items():
        if here.get(name) != kind:
            change = "has no such field" if name not in here else f"has {here[name]} there"
            raise PipelineError(
                f"the table of the log {log.name!r} ({table.path}) has a column {name} of type"
                f" {kind}, but the type of its bodies {change}. Give it back to the type, or write"
                " to a new log"
            )
    added = [name for name in here if name not in there]
    for name in added:
        if fields[name].required and fields[name].default is None:
            raise PipelineError(
                f"the type of the log {log.name!r} has a new field {name}, which the rows that are"
                f" there ({table.path}) lack; give it a default"
            )
    if added:
        table.add_columns([field.jsonValue() for field in wanted if field.name in added])


def _types(schema: Any) -> Mapping[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}
