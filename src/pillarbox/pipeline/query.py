"""One stream or sink as a query of Spark: what it reads, what it writes, how it stops.

The same records lead to the same `Step` whenever they are read again. A batch that has begun
is let finish by `stop`; one that begins after that does nothing and is run again next time.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import pillarbox.spark as ps
from pillarbox.log import Log, LogReader
from pillarbox.pipeline.columns import RAW, can_fail, decoded, encoded, mapped, sorted_out
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import ERRORS, LogRef, Processor
from pillarbox.pipeline.places import directory_of, log_behind
from pillarbox.pipeline.progress import query_name, take
from pillarbox.pipeline.recovery import Backing, Range, writer_id
from pillarbox.pipeline.schema import METADATA
from pillarbox.pipeline.status import StatusFile
from pillarbox.pipeline.step import Acts, Step, Window, ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pillarbox.pipeline.pipeline import Pipeline

_POLL_SECONDS = 0.02
_PIN_SECONDS = 5.0
_INPUT = "input"  # an option of our own, to know an input again in Spark's plan


@dataclass(frozen=True, slots=True)
class Settings:
    """How the queries of a run are started."""

    trigger: dict[str, Any]
    max_rows: int | None
    window: Window
    #: One query starts at a time.
    starting: threading.Lock = field(default_factory=threading.Lock)


class StoppingError(Exception):
    """A batch began when the pipeline was about to stop; it is run the next time."""


class Query:
    """A processor that Spark runs."""

    def __init__(
        self,
        pipeline: Pipeline,
        processor: Processor,
        spark: SparkSession,
        backing: Backing,
        *,
        status: StatusFile,
        settings: Settings,
    ) -> None:
        self.processor = processor
        self._pipeline = pipeline
        self._spark = spark
        self._backing = backing
        self._status = status
        self._settings = settings
        self._graph = pipeline.graph
        self._inputs = [self._resolved(each) for each in processor.inputs]
        self._outputs = [self._graph.log(name) for name in processor.output_names]
        self._readers: dict[str, LogReader] = {}
        self._at_work = threading.Lock()
        self._stopping = False
        self._active: Any = None
        self._batch_id: int | None = None
        self._sources: list[str | None] = []
        self._pin_again_at = 0.0

    def _resolved(self, each: LogRef | str) -> LogRef:
        return self._graph.log(each) if isinstance(each, str) else each

    # -- identity --------------------------------------------------------------------------

    @property
    def writer(self) -> str:
        generation = self._backing.last(self.processor.id).generation
        return writer_id(self.processor.id, generation)

    @property
    def checkpoint(self) -> str:
        return self._pipeline.places.checkpoint(self.writer)

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
        self._active.awaitTermination()
        if (last := self._active.lastProgress) is not None:
            take(self._status, self.processor.id, last["batchDuration"])

    def _wait_for_sources(self) -> None:
        """Each source is a process of its own, and Spark gives it ten seconds to come up."""
        while self._active.isActive and "nitializing" in self._active.status["message"]:
            time.sleep(_POLL_SECONDS)

    def _check_checkpoint(self) -> None:
        last = self._backing.last(self.processor.id)
        if last.recovery and not self._pipeline.places.has_checkpoint(self.writer):
            raise PipelineError(
                f"the checkpoint {self.checkpoint} is gone, but {self.processor.id!r} has been as"
                f" far as step {last.recovery.step}; restore it, or say where to go on with"
                f" 'pillarbox pipeline reset {self.processor.id} --to last' (what an aggregation"
                " has gathered is lost with the checkpoint)"
            )

    def _start(self) -> Any:
        sink = self.processor.kind == "sink"
        rows = self._sink_rows() if sink else self._stream_rows()
        self._sources = inputs_in_plan(rows)
        options = {"processor": self.writer}
        if not sink and self.processor.strategy == "exactly-once":
            urls = list(self._urls().values())
            options["epoch"] = str(ps.claim(urls, self.writer))
        handle = self._sink_batch if sink else functools.partial(self._stream_batch, options)
        return (
            rows.writeStream.queryName(query_name(self._pipeline.name, self.processor.id))
            .outputMode(self.processor.mode)
            .option("checkpointLocation", self.checkpoint)
            .trigger(**self._settings.trigger)
            .foreachBatch(functools.partial(self._batch, handle))
            .start()
        )

    def _batch(self, handle: Any, rows: DataFrame, batch_id: int) -> None:
        with self._at_work:
            if self._stopping:
                raise StoppingError
            self._batch_id = batch_id
            read = ps.read_step(self.checkpoint, batch_id, self.writer)
            offsets = [(each.start, each.end) for each in read.inputs]
            generation = self._backing.last(self.processor.id).generation
            inputs = self._since_reset(ranges(offsets, self._sources))
            step = Step(self.processor.id, batch_id, read.hash, inputs, generation)
            started = time.monotonic()
            before = self._next_indices()
            self._pin(step)
            handle(rows, step)
            self._note(step, before, time.monotonic() - started)

    def _pin(self, step: Step) -> None:
        """Keep retention from what a restart would read. A pin that is behind does no harm."""
        if time.monotonic() < self._pin_again_at:
            return
        self._pin_again_at = time.monotonic() + _PIN_SECONDS
        for log in self._inputs:
            directory = log_behind(log.url)
            if directory is not None and log.name in step.inputs:
                with Log.open(directory, readonly=True) as reader:
                    start = step.inputs[log.name][0]
                    name = f"pipeline.{self._pipeline.name}.{self.processor.id}"
                    reader.pin(name, reader.first_index if start is None else start)

    def _since_reset(self, inputs: dict[str, Range]) -> dict[str, Range]:
        """Spark does not say where its first batch begins; the reset that led there does."""
        reset = self._backing.last(self.processor.id).reset
        begun = reset.inputs if reset is not None else {}
        return {
            name: (begun.get(name) if start is None else start, end)
            for name, (start, end) in inputs.items()
        }

    def _note(self, step: Step, before: dict[str, int], seconds: float) -> None:
        known = self._status.of(self.processor.id)
        known.step = step.number
        known.steps += 1
        known.error = None
        known.step_rows = sum(end - (start or 0) for start, end in step.inputs.values())
        known.rows += known.step_rows
        known.read |= {name: end for name, (_, end) in step.inputs.items()}
        known.written = self._next_indices()
        for name, end in known.written.items():
            known.written_per_second[name] = (end - before.get(name, 0)) / max(seconds, 1e-3)
        self._status.save()

    # -- streams and sources -----------------------------------------------------------------

    def _stream_rows(self) -> DataFrame:
        """What the query hands to each batch: the rows to write, with the output of each."""
        each = self.processor
        if each.each:
            (log,) = self._inputs
            return mapped(self._raw(log), log, tuple(self._outputs), each)
        good, bad = self._decoded()
        made = each.function(*good) if each.inputs else each.function(self._spark)
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
        rows = [encoded(by_output[log.name], log, each) for log in self._outputs]
        return functools.reduce(DataFrame.unionByName, [*rows, *bad])

    def _stream_batch(self, options: dict[str, str], rows: DataFrame, step: Step) -> None:
        def write(exactly_once: bool) -> None:
            strategy = "exactly-once" if exactly_once else "at-least-once"
            (
                rows.write.format("pillarbox")
                .mode("append")
                .options(
                    **options,
                    outputs=json.dumps(self._urls()),
                    strategy=strategy,
                    checkpointLocation=self.checkpoint,
                    batchId=str(step.number),
                )
                .save()
            )

        acts = Acts(self._backing, self._next_indices, write, self._settings.window)
        acts.run(step, self.processor.strategy)

    def _urls(self) -> dict[str, str]:
        """The logs that a step writes to, by the name in the rows' `output`."""
        urls = {log.name: f"file:{self._pipeline.directory(log.name)}" for log in self._outputs}
        return urls | {ERRORS: self._pipeline.places.errors_url(self.processor.id)}

    # -- sinks ---------------------------------------------------------------------------------

    def _sink_rows(self) -> DataFrame:
        """The rows of all inputs in one DataFrame: a column for each input, and one for errors."""
        parts = [sorted_out(self._raw(log), log, self.processor, _of(log)) for log in self._inputs]
        return functools.reduce(
            functools.partial(DataFrame.unionByName, allowMissingColumns=True), parts
        )

    def _sink_batch(self, rows: DataFrame, step: Step) -> None:
        several = len(self._inputs) > 1 or self._can_fail()
        held = rows.persist() if several else rows
        try:
            frames = [self._frame_of(log, held) for log in self._inputs]
            acts = Acts(self._backing, dict, lambda _: None, self._settings.window)
            acts.deliver(step, lambda each: self.processor.function(*frames, each))
            if self._can_fail():
                self._write_failures(held, step)
        finally:
            if several:
                held.unpersist()

    @staticmethod
    def _frame_of(log: LogRef, held: DataFrame) -> DataFrame:
        frame = held.where(F.col("output") == log.name).select(f"`{_of(log)}`.*")
        return frame.where(log.condition) if log.condition else frame

    def _write_failures(self, held: DataFrame, step: Step) -> None:
        failed = held.where(F.col("output") == ERRORS).select("body")
        if not failed.isEmpty():
            failed.write.format("pillarbox").mode("append").options(
                processor=self.writer, step=step.hash
            ).save(self._pipeline.places.errors_url(self.processor.id))

    # -- reading -------------------------------------------------------------------------------

    def _decoded(self) -> tuple[list[DataFrame], list[DataFrame]]:
        both = [decoded(self._raw(log), log, self.processor) for log in self._inputs]
        bad = [b for log, (_, b) in zip(self._inputs, both, strict=True) if can_fail(log)]
        return [good for good, _ in both], bad

    def _can_fail(self) -> bool:
        return any(can_fail(log) for log in self._inputs)

    def _raw(self, log: LogRef) -> DataFrame:
        reset = self._backing.last(self.processor.id).reset
        options = {_INPUT: log.name, "kinds": "sent,scheduled"}
        if reset is not None and log.name in reset.inputs:
            options["start"] = str(reset.inputs[log.name])
        if self._settings.max_rows is not None:
            options["maxRowsPerTrigger"] = str(self._settings.max_rows)
        place = directory_of(log.url)
        return (
            self._spark.readStream.format("pillarbox")
            .schema("index BIGINT, enqueued_at TIMESTAMP, body BINARY")
            .options(**options)
            .load(log.url if place is None else f"file:{place}")
            .select(
                F.col("index").alias(METADATA[0]),
                F.col("enqueued_at").alias(METADATA[1]),
                F.col("body").alias(RAW),
            )
        )

    def _next_indices(self) -> dict[str, int]:
        found = {}
        for log in self._outputs:
            reader = self._readers.get(log.name)
            if reader is None:
                reader = Log.open(self._pipeline.directory(log.name), readonly=True)
                self._readers[log.name] = reader
            reader.refresh()
            found[log.name] = reader.end_index
        return found

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
        if self._batch_id is None:
            return True
        return Path(self.checkpoint, "commits", str(self._batch_id)).exists()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def inputs_in_plan(rows: DataFrame) -> list[str | None]:
    """The input that each source of a query reads, in the order of Spark's offsets.

    Spark keeps an offset for each leaf of the plan, and an input that is used twice is two
    leaves. A source that is none of ours has no name.
    """
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    names: list[str | None] = []
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        if leaf.isStreaming():
            ours = leaf.nodeName() == "StreamingRelationV2" and leaf.sourceName() == "pillarbox"
            names.append(leaf.extraOptions().get(_INPUT) if ours else None)
    return names


def _of(log: LogRef) -> str:
    """The column for the rows of one of several inputs; no name of a log begins like this."""
    return f"_{log.name}"


def _described(made: Any) -> str:
    return f"a dict of {', '.join(map(str, made))}" if isinstance(made, dict) else repr(made)
