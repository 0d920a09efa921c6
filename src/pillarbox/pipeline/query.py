"""One stream or sink as a Spark query: how it starts, runs its batches and stops.

Reading the same records again yields the same `Step`. `stop` lets a running batch finish; a batch
that starts after that does nothing, and the next run repeats it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryListener

from pillarbox.logger import logger
from pillarbox.pipeline.backing import BackingLog
from pillarbox.pipeline.batch import BatchJob, BatchRunner, OnPhase
from pillarbox.pipeline.errors import PipelineError, TooManyFailedError
from pillarbox.pipeline.graph import ERRORS, Processor
from pillarbox.pipeline.maintenance import EVERY_STEPS, maintain_outputs
from pillarbox.pipeline.maps import ProcessorState
from pillarbox.pipeline.outputs import Outputs
from pillarbox.pipeline.paths import is_batch_done, newest_batch
from pillarbox.pipeline.plan import check_offsets, inputs_in_plan
from pillarbox.pipeline.query_plan import QueryPlan, messages
from pillarbox.pipeline.references import reference_to
from pillarbox.pipeline.running import StoppingError
from pillarbox.pipeline.status import ProcessorStatus, StatusFile
from pillarbox.spark.steps import Step, writer_id

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
    max_failed: int | None = None
    #: One query starts at a time.
    starting: threading.Lock = field(default_factory=threading.Lock)


class Query:
    """A Spark query of a processor, with the driver in this process."""

    #: Whether its steps can run as batch jobs.
    native = True

    def __init__(
        self,
        pipeline: Pipeline,
        processor: Processor,
        spark: SparkSession,
        backing: BackingLog,
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
        self._batch_lock = threading.Lock()
        self._stopping = False
        self._active: Any = None
        self._typed_inputs: set[str] = set()
        self._failed_end: int | None = None
        self._raised: Exception | None = None

    @property
    def _last(self) -> ProcessorState:
        return self._backing.last(self.processor.id)

    @property
    def writer(self) -> str:
        return writer_id(self.processor.id, self._last.generation)

    @property
    def checkpoint(self) -> str:
        return self.pipeline.paths.checkpoint(self.writer)

    # -- running ---------------------------------------------------------------------------

    def run(self) -> None:
        """Start the query and wait for its end; raise the error that ended it."""
        self._raised = None
        with self._batch_lock:
            if self._stopping:
                return
            self._check_checkpoint()
            with self._settings.starting:
                self._active = self._start()
                self._wait_for_sources()
        try:
            self.wait_for_end(self._active)
        except Exception:
            if self._raised is not None:
                raise self._raised from None  # Spark's error only contains its stack trace
            raise

    def _wait_for_sources(self) -> None:
        """Wait until the sources run. Each is a process that has ten seconds to start."""
        while self._active.isActive and "nitializing" in self._active.status["message"]:
            time.sleep(_POLL_SECONDS)

    def _check_checkpoint(self) -> None:
        recovery = self._last.recovery
        if recovery and newest_batch(self.checkpoint) is None:
            raise PipelineError(
                f"the checkpoint {self.checkpoint} is missing, but {self.processor.id!r} had"
                f" reached step {recovery.step}; restore it, or choose where to resume with"
                f" 'pillarbox pipeline reset {self.processor.id} --to last' (the state of an"
                " aggregation is lost with the checkpoint)"
            )

    def _start(self) -> Any:
        plan = QueryPlan(
            self._spark,
            self.processor,
            self._inputs,
            self._outputs,
            reset=self._last.reset,
            max_rows=self._settings.max_rows,
            native=self.native,
            portable=self.portable,
        )
        self._typed_inputs = set(plan.tables)
        rows, produce = plan.make()
        return (
            rows.writeStream.queryName(f"{self.pipeline.name}.{self.processor.id}")
            .outputMode(self.processor.mode)
            .option("checkpointLocation", self.checkpoint)
            .trigger(**self._settings.trigger)
            .foreachBatch(self.batch_function(self._job(rows, produce)))
            .start()
        )

    def _job(self, rows: DataFrame, produce: Any) -> BatchJob:
        reset, sink = self._last.reset, self.processor.kind == "sink"
        epochs = self.written.take_over(self.writer)
        if self._failed_end is None:
            self._failed_end = self.written.table(ERRORS).end_index
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
            epochs=epochs,
            checkpoint=self.checkpoint,
            produce=produce,
        )

    # -- running batches; overridden for Spark Connect -----------------------------------------

    def batch_function(self, job: BatchJob) -> Callable[[DataFrame, int], None]:
        """Return the function that Spark calls with each batch."""
        runner = BatchRunner(job, self._backing, self.written, self._settings.on_phase)

        def run_batch(rows: DataFrame, batch_id: int) -> None:
            started, before = time.monotonic(), self.written.next_indices()
            step = job.step(batch_id)
            if self.pipeline.paths.on_remote_store:
                check_offsets(self._active, step, self.checkpoint)
            runner.run(rows, step)
            self.note(step, before, time.monotonic() - started)

        def run_or_stop(rows: DataFrame, batch_id: int) -> None:
            with self._batch_lock:
                if self._stopping:
                    raise StoppingError
                try:
                    run_batch(rows, batch_id)
                except Exception as error:
                    self._raised = error
                    raise

        return run_or_stop

    def wait_for_end(self, active: Any) -> None:
        """Wait until the query has ended; raise the error that ended it."""
        active.awaitTermination()
        last = active.lastProgress
        if last is not None and "addBatch" in last["durationMs"]:  # not of an idle trigger
            # The listener may not have been told yet.
            self.status.note_duration(self.processor.id, last["batchId"], last["batchDuration"])

    def portable(self, thing: Any) -> Any:
        """Convert a function or a type to a form that workers can load."""
        return reference_to(thing)

    def inputs_in_plan(self, rows: DataFrame) -> list[str | None]:
        """Return the input that each source of a query reads, in the order of Spark's offsets."""
        return inputs_in_plan(rows)

    def note(self, step: Step, before: Mapping[str, int], seconds: float) -> None:
        """Add a step to the status; `before` has the end of each output before the step."""
        status = self.status.of(self.processor.id)
        status.step = step.number
        status.steps += 1
        status.error = None
        status.step_rows = sum(end - (start or 0) for start, end in step.inputs.values())
        status.rows += status.step_rows
        status.read |= {name: end for name, (_, end) in step.inputs.items()}
        status.written = self.written.next_indices()
        for name, end in status.written.items():
            status.written_per_second[name] = (end - before.get(name, 0)) / max(seconds, 1e-3)
        self._note_failed(status, step)
        self.status.save(soon=True)
        if step.number % EVERY_STEPS == EVERY_STEPS - 1:
            self._maintain()

    def _note_failed(self, status: ProcessorStatus, step: Step) -> None:
        end = self.written.table(ERRORS).end_index
        failed, self._failed_end = end - (self._failed_end or 0), end
        status.failed += failed
        status.failed_steps += bool(failed) and failed >= self._records(step)
        allowed = self._settings.max_failed
        if allowed is not None and status.failed > allowed:
            self.status.save()
            raise TooManyFailedError(
                f"failed records: {status.failed:,}, more than the allowed {allowed:,}; list them"
                f" with 'pillarbox pipeline errors TARGET {status.id}'"
            )

    def _records(self, step: Step) -> int:
        """Count the records that a step read; of a mailbox's history, only the messages."""
        total = 0
        for log in {log.name: log for log in self._inputs}.values():
            start, end = step.inputs.get(log.name, (0, 0))
            if start == end or log.name in self._typed_inputs:
                total += end - (start or 0)
            else:
                total += messages(self._spark, log, start or 0, end).count()
        return total

    def _maintain(self) -> None:
        """Merge small files. A failure is only logged: small files are slow, but harmless."""
        try:
            maintain_outputs(self.pipeline, self.processor.id, self._backing.last)
        except Exception as error:  # noqa: BLE001 - any error of the table or the disk
            logger.warning(
                "small files could not be merged", processor=self.processor.id, error=str(error)
            )

    # -- stopping --------------------------------------------------------------------------------

    def stop(self, deadline: float | None) -> None:
        """Wait until the current batch is done and in Spark's commit log, then stop the query."""
        left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        between_batches = self._batch_lock.acquire(timeout=left)
        self._stopping = True
        if between_batches:
            self._batch_lock.release()
        active = self._active
        if active is None:
            return
        while between_batches and active.isActive and not self._newest_batch_done():
            if deadline is not None and time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        active.stop()

    def _newest_batch_done(self) -> bool:
        """Return whether the newest batch is in Spark's commit log."""
        newest = newest_batch(self.checkpoint)
        return newest is None or is_batch_done(self.checkpoint, newest)


class ProgressListener(StreamingQueryListener):
    """Records the duration of each batch of a pipeline's queries, as reported by Spark."""

    def __init__(self, pipeline: str, status: StatusFile) -> None:
        self._pipeline = pipeline
        self._status = status

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        pipeline, _, processor_id = (progress.name or "").rpartition(".")
        if pipeline == self._pipeline and processor_id in self._status.status.processors:
            self._status.note_duration(processor_id, progress.batchId, progress.batchDuration)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: the runner started it."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing: the runner waits for the query itself."""
