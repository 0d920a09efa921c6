"""One stream or sink as a query of Spark: what it reads, how it starts, how it stops.

The same records lead to the same `Step` whenever they are read again. A batch that has begun
is let finish by `stop`; one that begins after that does nothing and is run again next time.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import pillarbox.spark as ps
from pillarbox.pipeline.batch import Batches, Outputs, Work, column_of
from pillarbox.pipeline.columns import RAW, can_fail, decoded, encoded, mapped, sorted_out
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import LogRef, Processor
from pillarbox.pipeline.places import directory_of
from pillarbox.pipeline.progress import query_name, take
from pillarbox.pipeline.recovery import Backing, Last, writer_id
from pillarbox.pipeline.references import referring
from pillarbox.pipeline.running import StoppingError
from pillarbox.pipeline.schema import METADATA
from pillarbox.pipeline.status import StatusFile
from pillarbox.pipeline.step import Step, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pillarbox.pipeline.pipeline import Pipeline

_POLL_SECONDS = 0.02
INPUT = "input"  # an option of our own, to know an input again in Spark's plan


@dataclass(frozen=True, slots=True)
class Settings:
    """How the queries of a run are started."""

    trigger: dict[str, Any]
    max_rows: int | None
    window: Window
    #: One query starts at a time.
    starting: threading.Lock = field(default_factory=threading.Lock)


class Query:
    """A processor that Spark runs, with a driver in this process."""

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
        self.written = Outputs(self._directories)
        self._at_work = threading.Lock()
        self._stopping = False
        self._active: Any = None

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
        sink = self.processor.kind == "sink"
        rows = self._sink_rows() if sink else self._stream_rows()
        return (
            rows.writeStream.queryName(query_name(self.pipeline.name, self.processor.id))
            .outputMode(self.processor.mode)
            .option("checkpointLocation", self.checkpoint)
            .trigger(**self._settings.trigger)
            .foreachBatch(self.taker(self._work(rows)))
            .start()
        )

    def _work(self, rows: DataFrame) -> Work:
        reset, sink = self._last.reset, self.processor.kind == "sink"
        work = Work(
            pipeline=self.pipeline.name,
            processor=self.processor.id,
            strategy=self.processor.strategy,
            deliver=self.processor.function if sink else None,
            inputs=tuple(self._inputs),
            outputs=self._directories,
            errors_url=self.pipeline.places.errors_url(self.processor.id),
            can_fail=any(can_fail(log) for log in self._inputs),
            sources=self.inputs_in_plan(rows),
            begins=reset.inputs if reset is not None else {},
            writer=self.writer,
            generation=self._last.generation,
            epoch=None,
            checkpoint=self.checkpoint,
        )
        if sink or self.processor.strategy != "exactly-once":
            return work
        return replace(work, epoch=ps.claim(list(work.output_urls.values()), self.writer))

    # -- where its batches are taken; Spark Connect does these in its own way ------------------

    def taker(self, work: Work) -> Callable[[DataFrame, int], None]:
        """What Spark calls with each batch."""
        batches = Batches(work, self._backing, self.written, self._settings.window)

        def take_one(rows: DataFrame, batch_id: int) -> None:
            with self._at_work:
                if self._stopping:
                    raise StoppingError
                started, before = time.monotonic(), self.written.next_indices()
                step = batches.take(rows, batch_id)
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

    @staticmethod
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
                names.append(leaf.extraOptions().get(INPUT) if ours else None)
        return names

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
        self.status.save()

    # -- what it reads and makes of it ---------------------------------------------------------

    def _stream_rows(self) -> DataFrame:
        """What the query hands to each batch: the rows to write, with the output of each."""
        each = self.processor
        if each.each:
            (log,) = self._inputs
            return mapped(self._raw(log), log, tuple(self._outputs), each, self.portable)
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

    def _sink_rows(self) -> DataFrame:
        """The rows of all inputs in one DataFrame: a column for each input, and one for errors."""
        parts = [
            sorted_out(self._raw(log), log, self.processor, column_of(log)) for log in self._inputs
        ]
        return functools.reduce(
            functools.partial(DataFrame.unionByName, allowMissingColumns=True), parts
        )

    def _decoded(self) -> tuple[list[DataFrame], list[DataFrame]]:
        both = [decoded(self._raw(log), log, self.processor) for log in self._inputs]
        bad = [b for log, (_, b) in zip(self._inputs, both, strict=True) if can_fail(log)]
        return [good for good, _ in both], bad

    def _raw(self, log: LogRef) -> DataFrame:
        reset = self._last.reset
        options = {INPUT: log.name, "kinds": "sent,scheduled"}
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
        offsets = Path(self.checkpoint, "offsets").glob("[0-9]*")
        newest = max((int(each.name) for each in offsets), default=None)
        return newest is None or Path(self.checkpoint, "commits", str(newest)).exists()

    def close(self) -> None:
        self.written.close()


def _described(made: Any) -> str:
    return f"a dict of {', '.join(map(str, made))}" if isinstance(made, dict) else repr(made)
