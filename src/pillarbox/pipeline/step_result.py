"""What a step makes: the rows for each output, and those for the error log.

In general they come out of the query itself. A processor that treats each row by itself is run
as a batch job instead: the query only tells which rows of which logs belong to the step, and
Spark reads them with its own Parquet reader. That is five times as fast.
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
    """The rows for one output, and the fields without which it can't take a row."""

    rows: DataFrame
    required: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step makes. `failures` are asked for when all outputs are written."""

    outputs: Mapping[str, OutputRows]
    failures: Callable[[], list[DataFrame]] = list


Produce = Callable[[DataFrame, Mapping[str, Range]], contextlib.AbstractContextManager[StepResult]]


@dataclass(frozen=True, slots=True)
class FromQuery:
    """Takes the rows out of the query. Can be pickled."""

    #: By output: the fields that are required.
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
    """Reads the inputs of a step anew, as batches. `rows` has those of row logs."""

    spark: Any
    logs: Sequence[LogRef]
    tables: Mapping[str, TableLog]
    processor: Processor

    def frames(
        self, rows: DataFrame, ranges: Mapping[str, Range]
    ) -> Iterator[tuple[LogRef, DataFrame, DataFrame | None]]:
        """Each input with its readable rows, and with all parsed bodies if it is a row log."""
        for log in self.logs:
            table = self.tables.get(log.name)
            if table is None:
                found = columns.parsed(rows.where(F.col(INPUT_OF) == log.name), log)
                yield log, columns.readable(found, log), found
            else:
                start, end = ranges.get(log.name, (0, 0))
                table.refresh()
                stored: Any = StructType.fromDDL(shape_of(log.body_type).stored_ddl)
                rows_in = read_rows(self.spark, table, stored, start or 0, end)
                yield log, columns.typed(rows_in, log, table.added_columns), None


@dataclass(slots=True)
class StreamBatchJob:
    """Runs the function of a stream on batches."""

    inputs: Inputs
    outputs: Sequence[LogRef]
    apply: Callable[[list[DataFrame]], dict[str, DataFrame]]

    @contextlib.contextmanager
    def __call__(self, rows: DataFrame, ranges: Mapping[str, Range]) -> Iterator[StepResult]:
        processor = self.inputs.processor
        watched: list[tuple[Observation, DataFrame]] = []
        good = []
        for log, frame, found in self.inputs.frames(rows, ranges):
            if found is not None and columns.can_fail(log):
                seen = Observation()
                count = F.count_if(F.col(columns.CAUSE).isNotNull()).alias("failed")
                frame = columns.readable(found.observe(seen, count), log)  # noqa: PLW2901
                watched.append((seen, columns.unreadable(found, log, processor)))
            good.append(frame)
        made = self.apply(good)
        outputs = {}
        for log in self.outputs:
            stored = columns.storable(made[log.name], log, processor)
            outputs[log.name] = OutputRows(stored, columns.required_fields(log))

        def failures() -> list[DataFrame]:
            return [failed for seen, failed in watched if _some_failed(seen)]

        yield StepResult(outputs, failures)


def _some_failed(seen: Observation) -> bool:
    """Whether some bodies could not be read; True if Spark did not evaluate that input."""
    observed: Any = seen
    if not observed._jo.future().isCompleted():
        return True  # no output needs this input, and to ask would be to wait for ever
    try:
        return bool(seen.get["failed"])
    except Exception:  # noqa: BLE001 - an assertion of the JVM's
        return True


@dataclass(slots=True)
class SinkBatchJob:
    """Reads the inputs of a sink as batches."""

    inputs: Inputs

    @contextlib.contextmanager
    def __call__(self, rows: DataFrame, ranges: Mapping[str, Range]) -> Iterator[StepResult]:
        frames: dict[str, OutputRows] = {}
        held: list[tuple[LogRef, DataFrame]] = []
        for log, frame, found in self.inputs.frames(rows, ranges):
            kept = frame
            if found is not None and columns.can_fail(log):
                held.append((log, found.persist()))
                kept = columns.readable(held[-1][1], log)
            frames[log.name] = OutputRows(kept)

        def failures() -> list[DataFrame]:
            failed = [columns.unreadable(x, log, self.inputs.processor) for log, x in held]
            return [each for each in failed if not each.isEmpty()]

        try:
            yield StepResult(frames, failures)
        finally:
            for _, each in held:
                each.unpersist()


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all; a column that one lacks is null there."""
    both = functools.partial(DataFrame.unionByName, allowMissingColumns=True)
    return functools.reduce(both, frames)
