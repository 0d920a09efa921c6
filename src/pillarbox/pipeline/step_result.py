"""The result of a step: the rows for each output and for the error log.

In general they come from the streaming query. A stateless processor runs as a batch job instead:
the query only determines which rows of which logs belong to the step, and Spark reads them with
its own Parquet reader. That is five times as fast.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pillarbox.pipeline import columns
from pillarbox.pipeline.graph import ERRORS, LogRef, Processor
from pillarbox.pipeline.maps import Range
from pillarbox.pipeline.schema import Column, shape_of
from pillarbox.spark.native import read_rows
from pillarbox.spark.table import TableLog

INPUT_OF = "input"


@dataclass(frozen=True, slots=True)
class OutputRows:
    """The rows for one output, and the fields that every row must have."""

    rows: DataFrame
    required: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step. `failures` is called after all outputs are written."""

    outputs: Mapping[str, OutputRows]
    failures: Callable[[], list[DataFrame]] = list


Produce = Callable[[DataFrame, Mapping[str, Range]], contextlib.AbstractContextManager[StepResult]]


@dataclass(frozen=True, slots=True)
class FromQuery:
    """Takes the rows from the streaming query. Can be pickled."""

    #: The required fields of each output.
    outputs: Mapping[str, tuple[Column, ...]]
    can_fail: bool

    @contextlib.contextmanager
    def __call__(self, rows: DataFrame, _: Mapping[str, Range]) -> Iterator[StepResult]:
        shared = self.can_fail or len(self.outputs) > 1 or any(self.outputs.values())
        held = rows.persist() if shared else rows

        def failures() -> list[DataFrame]:
            failed = columns.rows_for(held, ERRORS) if self.can_fail else None
            return [] if failed is None or failed.isEmpty() else [failed]

        made = {n: OutputRows(columns.rows_for(held, n), r) for n, r in self.outputs.items()}
        try:
            yield StepResult(made, failures)
        finally:
            if shared:
                held.unpersist()


@dataclass(slots=True)
class Inputs:
    """Reads the inputs of a step as batches.

    Typed logs are read from their files; the rows of row logs come from the query.
    """

    spark: Any
    logs: Sequence[LogRef]
    tables: Mapping[str, TableLog]
    processor: Processor

    def frames(
        self, rows: DataFrame, ranges: Mapping[str, Range]
    ) -> Iterator[tuple[LogRef, DataFrame, DataFrame | None]]:
        """Yield each input with its valid rows and, for a row log, all parsed bodies."""
        for log in self.logs:
            table = self.tables.get(log.name)
            if table is None:
                bodies = columns.parsed(rows.where(F.col(INPUT_OF) == log.name), log)
                yield log, columns.readable(bodies, log), bodies
            else:
                start, end = ranges.get(log.name, (0, 0))
                table.refresh()
                stored: Any = StructType.fromDDL(shape_of(log.body_type).stored_ddl)
                rows_in = read_rows(self.spark, table, stored, start or 0, end)
                yield log, columns.typed(rows_in, log, table.added_columns), None


@dataclass(slots=True)
class StreamBatchJob:
    """Calls the function of a stream with the batches of a step."""

    inputs: Inputs
    outputs: Sequence[LogRef]
    apply: Callable[[list[DataFrame]], dict[str, DataFrame]]

    @contextlib.contextmanager
    def __call__(self, rows: DataFrame, ranges: Mapping[str, Range]) -> Iterator[StepResult]:
        processor = self.inputs.processor
        watched: list[tuple[Observation, DataFrame]] = []
        good = []
        for log, frame, bodies in self.inputs.frames(rows, ranges):
            if bodies is not None and columns.can_fail(log):
                observation = Observation()
                count = F.count_if(F.col(columns.CAUSE).isNotNull()).alias("failed")
                frame = columns.readable(bodies.observe(observation, count), log)  # noqa: PLW2901
                watched.append((observation, columns.unreadable(bodies, log, processor)))
            good.append(frame)
        made = self.apply(good)
        outputs = {}
        for log in self.outputs:
            stored = columns.storable(made[log.name], log, processor)
            outputs[log.name] = OutputRows(stored, columns.required_fields(log))

        def failures() -> list[DataFrame]:
            return [failed for observation, failed in watched if _some_failed(observation)]

        yield StepResult(outputs, failures)


def _some_failed(observation: Observation) -> bool:
    """Return whether bodies could not be parsed; True if Spark did not evaluate the input."""
    internal: Any = observation
    if not internal._jo.future().isCompleted():
        return True  # no output uses this input, so `get` would block forever
    try:
        return bool(observation.get["failed"])
    except Exception:  # noqa: BLE001 - an assertion error of the JVM
        return True


@dataclass(slots=True)
class SinkBatchJob:
    """Reads the inputs of a sink as the batches of a step."""

    inputs: Inputs

    @contextlib.contextmanager
    def __call__(self, rows: DataFrame, ranges: Mapping[str, Range]) -> Iterator[StepResult]:
        frames: dict[str, OutputRows] = {}
        persisted: list[tuple[LogRef, DataFrame]] = []
        for log, frame, bodies in self.inputs.frames(rows, ranges):
            valid = frame
            if bodies is not None and columns.can_fail(log):
                persisted.append((log, bodies.persist()))
                valid = columns.readable(persisted[-1][1], log)
            frames[log.name] = OutputRows(valid)

        def failures() -> list[DataFrame]:
            failed = [columns.unreadable(x, log, self.inputs.processor) for log, x in persisted]
            return [each for each in failed if not each.isEmpty()]

        try:
            yield StepResult(frames, failures)
        finally:
            for _, each in persisted:
                each.unpersist()


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union of all rows; columns that a frame lacks are null."""
    both = functools.partial(DataFrame.unionByName, allowMissingColumns=True)
    return functools.reduce(both, frames)
