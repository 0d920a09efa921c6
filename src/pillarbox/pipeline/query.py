"""One stream or sink as a query of Spark: what it reads, how it starts, how it stops.

The same records lead to the same `Step` whenever they are read again. A batch that has begun
is let finish by `stop`; one that begins after that does nothing and is run again next time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pillarbox.logger import logger
from pillarbox.pipeline.batch import BatchJob, BatchRunner, OnPhase
from pillarbox.pipeline.columns import (
    CAUSE,
    RAW,
    as_raw,
    can_fail,
    checked,
    column_of,
    judged,
    mapped,
    packed_failures,
    packed_input,
    readable,
    required_columns,
    routed,
    routed_input,
    typed,
    unreadable,
)
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import ERRORS, LogRef, Processor
from pillarbox.pipeline.maintenance import EVERY_STEPS, maintain_outputs
from pillarbox.pipeline.maps import Last
from pillarbox.pipeline.outputs import Outputs
from pillarbox.pipeline.places import is_noted, newest_batch
from pillarbox.pipeline.plan import (
    INPUT,
    check_offsets,
    inputs_in_plan,
    keeps_state,
    probe,
    used_columns,
)
from pillarbox.pipeline.product import INPUT_OF, Inputs, Native, NativeSink, Routed, union
from pillarbox.pipeline.progress import query_name, take
from pillarbox.pipeline.recovery import Maps
from pillarbox.pipeline.references import referring
from pillarbox.pipeline.running import StoppingError
from pillarbox.pipeline.schema import METADATA, shape_of
from pillarbox.pipeline.status import StatusFile
from pillarbox.spark.options import STORAGE
from pillarbox.spark.steps import Step, writer_id
from pillarbox.spark.storage import location_of, options_of, spark_path
from pillarbox.spark.table import TableLog, is_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pillarbox.pipeline.pipeline import Pipeline

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Settings:
    """How the queries of a run are started."""

    trigger: dict[str, Any]
    max_rows: int | None
    on_phase: OnPhase
    #: One query starts at a time.
    starting: threading.Lock = field(default_factory=threading.Lock)


class Query:
    """A processor that Spark runs, with a driver in this process."""

    #: Whether its steps can be batch jobs.
    native = True

    def __init__(
        self,
        pipeline: Pipeline,
        processor: Processor,
        spark: SparkSession,
        backing: Maps,
        *,
        status: StatusFile,
        settings: Settings,
    ) -> None:
        self.processor = processor
        self.pipeline = pipeline
        self.status = status
        self._spark = spark
        self._backing = backing
        self._settings = settings
        graph = pipeline.graph
        self._inputs = [
            graph.log(each) if isinstance(each, str) else each for each in processor.inputs
        ]
        self._outputs = [graph.log(name) for name in processor.output_names]
        self._directories = {log.name: pipeline.directory(log.name) for log in self._outputs}
        errors = pipeline.errors_directory(processor.id)
        self.written = Outputs(self._directories, errors)
        self._at_work = threading.Lock()
        self._stopping = False
        self._active: Any = None
        self._used: set[str] | None = None

    @property
    def _last(self) -> Last:
        return self._backing.last(self.processor.id)

    @property
    def writer(self) -> str:
        return writer_id(self.processor.id, self._last.generation)

    @property
    def checkpoint(self) -> str:
        return self.pipeline.places.checkpoint(self.writer)

    # -- running ---------------------------------------------------------------------------

    def run(self) -> None:
        """Start the query and wait for its end; raises what ended it."""
        with self._at_work:
            if self._stopping:
                return
            self._check_checkpoint()
            with self._settings.starting:
                self._active = self._start()
                self._wait_for_sources()
        self.wait_for_end(self._active)

    def _wait_for_sources(self) -> None:
        """Each source is a process of its own, and Spark gives it ten seconds to come up."""
        while self._active.isActive and "nitializing" in self._active.status["message"]:
            time.sleep(_POLL_SECONDS)

    def _check_checkpoint(self) -> None:
        recovery = self._last.recovery
        if recovery and not self.pipeline.places.has_checkpoint(self.writer):
            raise PipelineError(
                f"the checkpoint {self.checkpoint} is gone, but {self.processor.id!r} has been as"
                f" far as step {recovery.step}; restore it, or say where to go on with"
                f" 'pillarbox pipeline reset {self.processor.id} --to last' (what an aggregation"
                " has gathered is lost with the checkpoint)"
            )

    def _start(self) -> Any:
        rows, produce = self._plan()
        return (
            rows.writeStream.queryName(query_name(self.pipeline.name, self.processor.id))
            .outputMode(self.processor.mode)
            .option("checkpointLocation", self.checkpoint)
            .trigger(**self._settings.trigger)
            .foreachBatch(self.taker(self._job(rows, produce)))
            .start()
        )

    def _job(self, rows: DataFrame, produce: Any) -> BatchJob:
        reset, sink = self._last.reset, self.processor.kind == "sink"
        self.written.clear(self.writer)
        claims = not sink and self.processor.strategy == "exactly-once"
        return BatchJob(
            pipeline=self.pipeline.name,
            processor=self.processor.id,
            strategy=self.processor.strategy,
            deliver=self.processor.function if sink else None,
            inputs=tuple(self._inputs),
            outputs=self._directories,
            errors=self.pipeline.errors_directory(self.processor.id),
            sources=self.inputs_in_plan(rows),
            begins=reset.inputs if reset is not None else {},
            generation=self._last.generation,
            epochs=self.written.claim(self.writer) if claims else {},
            checkpoint=self.checkpoint,
            produce=produce,
        )

    # -- where its batches are taken; Spark Connect does these in its own way ------------------

    def taker(self, job: BatchJob) -> Callable[[DataFrame, int], None]:
        """What Spark calls with each batch."""
        runner = BatchRunner(job, self._backing, self.written, self._settings.on_phase)

        def take_one(rows: DataFrame, batch_id: int) -> None:
            with self._at_work:
                if self._stopping:
                    raise StoppingError
                started, before = time.monotonic(), self.written.next_indices()
                step = job.step(batch_id)
                if self.pipeline.places.on_object_store:
                    check_offsets(self._active, step, self.checkpoint)
                runner.run(rows, step)
                self.note(step, before, time.monotonic() - started)

        return take_one

    def wait_for_end(self, active: Any) -> None:
        """Wait until the query has ended; raises what ended it."""
        active.awaitTermination()
        if (last := active.lastProgress) is not None:
            take(self.status, self.processor.id, last["batchDuration"])

    def portable(self, thing: Any) -> Any:
        """A function or a type in the form in which it travels to workers."""
        return referring(thing)

    def inputs_in_plan(self, rows: DataFrame) -> list[str | None]:
        """The input that each source of a query reads, in the order of Spark's offsets."""
        return inputs_in_plan(rows)

    def note(self, step: Step, before: Mapping[str, int], seconds: float) -> None:
        """Take a step into the status, and how far its outputs were before."""
        known = self.status.of(self.processor.id)
        known.step = step.number
        known.steps += 1
        known.error = None
        known.step_rows = sum(end - (start or 0) for start, end in step.inputs.values())
        known.rows += known.step_rows
        known.read |= {name: end for name, (_, end) in step.inputs.items()}
        known.written = self.written.next_indices()
        for name, end in known.written.items():
            known.written_per_second[name] = (end - before.get(name, 0)) / max(seconds, 1e-3)
        self.status.save(soon=True)
        if step.number % EVERY_STEPS == EVERY_STEPS - 1:
            self._maintain()

    def _maintain(self) -> None:
        """Small files cost time, never records: if this fails, the steps go on."""
        try:
            maintain_outputs(self.pipeline, self.processor.id, self._backing.last)
        except Exception as error:  # noqa: BLE001 - whatever the table or the disk says
            logger.warning(
                "small files could not be merged", processor=self.processor.id, error=str(error)
            )

    # -- what it reads and makes of it ---------------------------------------------------------

    def _plan(self) -> tuple[DataFrame, Any]:
        """The rows of the query, and what takes those of a step out of them."""
        sink, names = self.processor.kind == "sink", tuple(log.name for log in self._inputs)
        if self.native and (sink or self._is_row_by_row()):
            bare = [replace(log, condition=None) for log in self._inputs] if sink else self._inputs
            inputs = Inputs(self._spark, bare, self._tables(), self.processor)
            if sink:
                return self._named_rows(), NativeSink(inputs)
            return self._named_rows(), Native(inputs, self._outputs, self._applied)
        if sink:
            return union([self._sink_rows(log) for log in self._inputs]), Routed(
                names, can_fail=any(self._can_fail(log) for log in self._inputs)
            )
        rows = self._stream_rows()
        outputs = tuple(log.name for log in self._outputs)
        return rows, Routed(outputs, can_fail=column_of(ERRORS) in rows.columns)

    def _is_row_by_row(self) -> bool:
        if self.processor.each or self.processor.kind == "source":
            return False
        made = self._applied([probe(self._spark, log) for log in self._inputs])
        for log in self._outputs:
            checked(made[log.name], log, self.processor)
        names = {x.name for log in self._inputs for x in shape_of(log.body_type).columns}
        self._used = used_columns(made.values(), names | set(METADATA))
        return not keeps_state(made.values())

    def _tables(self) -> dict[str, TableLog]:
        places = {log.name: location_of(log.url) for log in self._inputs}
        return {name: TableLog(x) for name, x in places.items() if x is not None and is_table(x)}

    def _applied(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        """What the processor's function makes, by output."""
        each = self.processor
        made = each.function(*frames) if each.inputs else each.function(self._spark)
        by_output = made if isinstance(made, dict) else {self._outputs[0].name: made}
        names = [log.name for log in self._outputs]
        if set(by_output) != set(names) or not all(
            isinstance(frame, DataFrame) for frame in by_output.values()
        ):
            raise PipelineError(
                f"the {each.kind} {each.id!r} must return a DataFrame for each of its outputs"
                f" ({', '.join(names)}), as a dict by name if there are several; it returned"
                f" {_described(made)}"
            )
        return by_output

    def _named_rows(self) -> DataFrame:
        """All inputs in one: of typed logs nothing but the range is used, and nothing is read."""
        parts = []
        for log in {log.name: log for log in self._inputs}.values():
            if self._is_typed(log):
                rows = self._read(log, f"{METADATA[0]} BIGINT")
                parts.append(rows.select(F.lit(log.name).alias(INPUT_OF), METADATA[0]))
            else:
                parts.append(self._raw(log).select(F.lit(log.name).alias(INPUT_OF), "*"))
        return union(parts)

    def _stream_rows(self) -> DataFrame:
        """The rows to write, with the output of each."""
        each = self.processor
        if each.each:
            (log,) = self._inputs
            raw = as_raw(self._typed(log), log) if self._is_typed(log) else self._raw(log)
            return mapped(raw, log, tuple(self._outputs), each, self.portable)
        good, bad = [], []
        for log in self._inputs:
            if self._is_typed(log):
                good.append(self._typed(log))
                continue
            found = judged(self._raw(log), log)
            good.append(readable(found, log))
            if can_fail(log):
                bad.append(packed_failures(unreadable(found, log, each)))
        made = self._applied(good)
        parts = []
        for log in self._outputs:
            rows = checked(made[log.name], log, each)
            whole = not required_columns(log)
            parts.append(packed_input(rows.drop(CAUSE), log) if whole else routed(rows, log, each))
        return union([*parts, *bad])

    def _sink_rows(self, log: LogRef) -> DataFrame:
        """The rows of one input as one column."""
        bare = replace(log, condition=None)
        if self._is_typed(log):
            return packed_input(self._typed(bare), log)
        return routed_input(judged(self._raw(log), log), log, self.processor)

    def _is_typed(self, log: LogRef) -> bool:
        place = location_of(log.url)
        return place is not None and is_table(place)

    def _can_fail(self, log: LogRef) -> bool:
        return can_fail(log) and not self._is_typed(log)

    def _typed(self, log: LogRef) -> DataFrame:
        """A typed log as a stream, of which only the columns are read that the function uses."""
        table = TableLog(str(location_of(log.url)))
        kinds = {each.name: each.stored_type for each in shape_of(log.body_type).columns}
        kinds |= dict(zip(METADATA, ("BIGINT", "TIMESTAMP"), strict=True))
        used = [name for name in kinds if self._used is None or name in self._used]
        read = used or METADATA[:1]
        rows = self._read(log, ", ".join(f"`{name}` {kinds[name]}" for name in read))
        unused = {name: F.lit(None).cast(kinds[name]) for name in kinds if name not in rows.columns}
        return typed(rows.withColumns(unused) if unused else rows, log, table.added_columns)

    def _raw(self, log: LogRef) -> DataFrame:
        return self._read(log, "index BIGINT, enqueued_at TIMESTAMP, body BINARY").select(
            F.col("index").alias(METADATA[0]),
            F.col("enqueued_at").alias(METADATA[1]),
            F.col("body").alias(RAW),
        )

    def _read(self, log: LogRef, schema: str) -> DataFrame:
        reset = self._last.reset
        options = {INPUT: log.name, "kinds": "sent,scheduled"}
        if reset is not None and log.name in reset.inputs:
            options["start"] = str(reset.inputs[log.name])
        if self._settings.max_rows is not None:
            options["maxRowsPerTrigger"] = str(self._settings.max_rows)
        place = location_of(log.url)
        if place is not None:
            options |= {f"{STORAGE}{name}": value for name, value in options_of(place).items()}
        reader = self._spark.readStream.format("pillarbox").schema(schema).options(**options)
        return reader.load(log.url if place is None else spark_path(place))

    # -- stopping --------------------------------------------------------------------------------

    def stop(self, deadline: float | None) -> None:
        """Let the batch under way end, and Spark take note of it; then stop the query."""
        left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        had = self._at_work.acquire(timeout=left)
        self._stopping = True
        if had:
            self._at_work.release()
        active = self._active
        if active is None:
            return
        while had and active.isActive and not self._noted_by_spark():
            if deadline is not None and time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        active.stop()

    def _noted_by_spark(self) -> bool:
        """Whether the newest batch that was begun is done, as Spark's own files have it."""
        newest = newest_batch(self.checkpoint)
        return newest is None or is_noted(self.checkpoint, newest)


def _described(made: Any) -> str:
    return f"a dict of {', '.join(map(str, made))}" if isinstance(made, dict) else repr(made)
