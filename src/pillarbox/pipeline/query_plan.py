"""Builds the query of a processor: its inputs, its function, and the result of each step.

A stateless processor, whose output rows each depend on one input row, runs as batch jobs over the
files of its inputs. Any other runs as a streaming query. Spark's plan of its function decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkTypeError, PySparkValueError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pillarbox.pipeline.columns import (
    RAW,
    as_raw,
    can_fail,
    column_of,
    mapped,
    packed,
    parsed,
    readable,
    required_fields,
    routed,
    storable,
    typed,
    unreadable,
)
from pillarbox.pipeline.errors import PipelineError, one_line
from pillarbox.pipeline.graph import ERRORS, LogRef, Processor
from pillarbox.pipeline.maps import Reset
from pillarbox.pipeline.plan import INPUT, keeps_state, probe, used_columns
from pillarbox.pipeline.schema import METADATA, Column, quoted, shape_of
from pillarbox.pipeline.step_result import (
    INPUT_OF,
    FromQuery,
    Inputs,
    SinkBatchJob,
    StreamBatchJob,
    union,
)
from pillarbox.spark.location import absolute_url, location_of
from pillarbox.spark.options import STORAGE
from pillarbox.spark.remote_store import options_of
from pillarbox.spark.table import TableLog, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Errors of a function that would happen again on every retry.
_PROGRAM_ERRORS = (
    AnalysisException,
    AttributeError,
    ImportError,
    NameError,
    PySparkTypeError,
    PySparkValueError,
    TypeError,
)


#: The events of a mailbox's history that have a body.
_MESSAGES = "sent,scheduled"


def messages(spark: SparkSession, log: LogRef, start: int, end: int) -> DataFrame:
    """Read the records of a row log, or the messages of a mailbox's history, by index."""
    options = {"kinds": _MESSAGES, "start": str(start), "end": str(end), **_storage(log)}
    reader = spark.read.format("pillarbox").schema("index BIGINT").options(**options)
    return reader.load(absolute_url(log.url))


def _storage(log: LogRef) -> dict[str, str]:
    """Return the data source's options for the remote store of a log."""
    location = location_of(log.url)
    options = {} if location is None else options_of(location)
    return {f"{STORAGE}{name}": value for name, value in options.items()}


@dataclass(slots=True)
class QueryPlan:
    """Builds the rows of a query, and the callable that makes a step's result from them."""

    spark: SparkSession
    processor: Processor
    inputs: list[LogRef]
    outputs: list[LogRef]
    #: The offsets that the processor was reset to, if it was.
    reset: Reset | None
    max_rows: int | None
    #: Whether its steps can run as batch jobs.
    native: bool
    #: Converts functions and types to a form that workers can load.
    portable: Callable[[Any], Any]
    #: The inputs that are typed logs.
    tables: dict[str, TableLog] = field(init=False)
    _used: set[str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        tables = {log.name: table_at(log.url) for log in self.inputs}
        self.tables = {name: table for name, table in tables.items() if table is not None}

    def make(self) -> tuple[DataFrame, Any]:
        """Return the rows of the query, and the callable that makes a step's result."""
        sink, each = self.processor.kind == "sink", self.processor.each
        if self.native and (sink or self._is_row_by_row()):
            bare = [replace(log, condition=None) for log in self.inputs] if sink else self.inputs
            inputs = Inputs(self.spark, bare, self.tables, self.processor)
            if sink:
                return self._named_rows(), SinkBatchJob(inputs)
            return self._named_rows(), StreamBatchJob(inputs, self.outputs, self._applied)
        if sink:
            rows = union([self._sink_rows(log) for log in self.inputs])
            required: dict[str, tuple[Column, ...]] = {log.name: () for log in self.inputs}
        else:
            rows = self._stream_rows()
            required = {x.name: () if each else required_fields(x) for x in self.outputs}
        return rows, FromQuery(required, can_fail=column_of(ERRORS) in rows.columns)

    def _is_row_by_row(self) -> bool:
        if self.processor.each or self.processor.kind == "source":
            return False
        made = self._applied([probe(self.spark, log) for log in self.inputs])
        for log in self.outputs:
            storable(made[log.name], log, self.processor)
        names = {x.name for log in self.inputs for x in shape_of(log.body_type).columns}
        self._used = used_columns(made.values(), names | set(METADATA))
        return not keeps_state(made.values())

    def _applied(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        """Call the processor's function and return its DataFrames by output."""
        each = self.processor
        try:
            result = each.function(*frames) if each.inputs else each.function(self.spark)
        except _PROGRAM_ERRORS as error:
            named = zip(self.inputs, frames, strict=True)
            inputs = "; ".join(f"{log.name}: {', '.join(x.columns)}" for log, x in named)
            raise PipelineError(
                f"its function failed: {one_line(error)}" + (f" (inputs: {inputs})" * bool(inputs))
            ) from error
        by_output = result if isinstance(result, dict) else {self.outputs[0].name: result}
        names = [log.name for log in self.outputs]
        if set(by_output) != set(names) or not all(
            isinstance(frame, DataFrame) for frame in by_output.values()
        ):
            raise PipelineError(
                f"the {each.kind} {each.id!r} must return a DataFrame for each of its outputs"
                f" ({', '.join(names)}), as a dict by name if there are several; it returned"
                f" {_described(result)}"
            )
        return by_output

    def _named_rows(self) -> DataFrame:
        """Return all inputs in one DataFrame.

        Of typed logs the query uses only the range of indices; their rows are not read here.
        """
        parts = []
        for log in {log.name: log for log in self.inputs}.values():
            if log.name in self.tables:
                rows = self._read(log, f"{METADATA[0]} BIGINT")
                parts.append(rows.select(F.lit(log.name).alias(INPUT_OF), METADATA[0]))
            else:
                parts.append(self._raw(log).select(F.lit(log.name).alias(INPUT_OF), "*"))
        return union(parts)

    def _stream_rows(self) -> DataFrame:
        """Return the rows to write, with the output of each."""
        each = self.processor
        if each.each:
            (log,) = self.inputs
            stored = log.name in self.tables
            raw = as_raw(self._typed(log), log) if stored else self._raw(log)
            return mapped(raw, log, tuple(self.outputs), each, self.portable, stored=stored)
        good, bad = [], []
        for log in self.inputs:
            if log.name in self.tables:
                good.append(self._typed(log))
                continue
            bodies = parsed(self._raw(log), log)
            good.append(readable(bodies, log))
            if can_fail(log):
                bad.append(packed(unreadable(bodies, log, each), ERRORS))
        made = self._applied(good)
        parts = [packed(storable(made[x.name], x, each), x.name) for x in self.outputs]
        return union([*parts, *bad])

    def _sink_rows(self, log: LogRef) -> DataFrame:
        """Return the rows of one input as one column."""
        bare = replace(log, condition=None)
        if log.name in self.tables:
            return packed(self._typed(bare), log.name)
        bodies = parsed(self._raw(log), log)
        if can_fail(log):
            return routed(bodies, log, self.processor)
        return packed(readable(bodies, bare), log.name)

    def _typed(self, log: LogRef) -> DataFrame:
        """Return a typed log as a stream that reads only the columns the function uses."""
        kinds = {each.name: each.stored_type for each in shape_of(log.body_type).columns}
        kinds |= dict(zip(METADATA, ("BIGINT", "TIMESTAMP"), strict=True))
        used = [name for name in kinds if self._used is None or name in self._used]
        read = used or METADATA[:1]
        rows = self._read(log, ", ".join(f"{quoted(name)} {kinds[name]}" for name in read))
        unused = {name: F.lit(None).cast(kinds[name]) for name in kinds if name not in rows.columns}
        added = self.tables[log.name].added_columns
        return typed(rows.withColumns(unused) if unused else rows, log, added)

    def _raw(self, log: LogRef) -> DataFrame:
        timed = self._used is None or METADATA[1] in self._used  # else the time is not needed
        columns = "index BIGINT, body BINARY" + ", enqueued_at TIMESTAMP" * timed
        return self._read(log, columns).select(
            F.col("index").alias(METADATA[0]),
            (F.col("enqueued_at") if timed else F.lit(None).cast("timestamp")).alias(METADATA[1]),
            F.col("body").alias(RAW),
        )

    def _read(self, log: LogRef, schema: str) -> DataFrame:
        reset = self.reset
        options = {INPUT: log.name, "kinds": _MESSAGES}
        if reset is not None and log.name in reset.inputs:
            options["start"] = str(reset.inputs[log.name])
        if self.max_rows is not None:
            options["maxRowsPerTrigger"] = str(self.max_rows)
        options |= _storage(log)
        reader = self.spark.readStream.format("pillarbox").schema(schema).options(**options)
        return reader.load(absolute_url(log.url))


def _described(made: Any) -> str:
    return f"a dict of {', '.join(map(str, made))}" if isinstance(made, dict) else repr(made)
