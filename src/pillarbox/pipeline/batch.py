"""Runs the steps of one stream or sink, in whichever process Spark calls `foreachBatch`.

A step is one Spark batch. Its inputs are fixed before it runs (in Spark's offset file and our
recovery map), so a repeated step reads the same records and has the same hash. With Spark Connect
the batches run in a process of the server, so `BatchJob` can be pickled and all other state is in
files.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pillarbox.log import Log
from pillarbox.pipeline.backing import BackingLog
from pillarbox.pipeline.graph import LogRef, Strategy
from pillarbox.pipeline.maps import Attempt, Range, Recovery
from pillarbox.pipeline.outputs import Outputs
from pillarbox.pipeline.paths import log_behind
from pillarbox.pipeline.step_result import Produce, StepResult
from pillarbox.spark.commits import pin_name
from pillarbox.spark.steps import Step, make_durable, read_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PIN_SECONDS = 5.0
#: Called after each phase of a step: `begun`, `recovery`, `attempt`, `output`. Tests interrupt
#: steps there.
OnPhase = Callable[[str], None]


class InterruptedStepError(Exception):
    """Raised by `on_phase` to simulate a crash: the processor is not restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """Everything needed to run the batches of a processor."""

    pipeline: str
    processor: str
    strategy: Strategy
    #: The function of a sink; None for a stream, which writes its outputs.
    deliver: Any
    inputs: tuple[LogRef, ...]
    #: The location of each output, and of the error log.
    outputs: Mapping[str, str]
    errors: str
    #: The input that each source of the query reads, in the order of Spark's offsets.
    sources: Sequence[str | None]
    #: The first offset of each input, for a first batch for which Spark records no start.
    begins: Mapping[str, int]
    #: The number of times the processor was reset.
    generation: int
    #: The epoch of this run in each output.
    epochs: Mapping[str, int]
    checkpoint: str
    #: Makes the output rows of a step from the rows of the query.
    produce: Any

    def step(self, batch_id: int) -> Step:
        """Return the step of a batch, with the range of each input that it reads."""
        step = read_step(self.checkpoint, batch_id, self.processor, self.generation)
        inputs: dict[str, Range] = {}
        for name, offset in zip(self.sources, step.offsets, strict=True):
            if name is not None and offset.end is not None:
                start = self.begins.get(name) if offset.start is None else _index(offset.start)
                inputs[name] = (start, _index(offset.end))
        return replace(step, inputs=inputs)


def _index(offset: str) -> int:
    return int(json.loads(offset)["index"])


@dataclass(slots=True)
class BatchRunner:
    """Runs the batches of a processor, one after another."""

    job: BatchJob
    backing: BackingLog
    outputs: Outputs
    on_phase: OnPhase = lambda _: None
    _pin_again_at: float = 0.0

    def run(self, rows: DataFrame, step: Step) -> None:
        produce: Produce = self.job.produce
        self._pin(step)
        with produce(rows, step.inputs) as result:
            self.on_phase("begun")
            if self.job.deliver is not None:
                self._deliver(result, step)
            elif self.job.strategy == "exactly-once":
                self._exactly_once(result, step)
            elif self.job.strategy == "at-least-once":
                self._write(result, step, check=False)
            else:
                self._at_most_once(result, step)

    def _pin(self, step: Step) -> None:
        """Pin the records that a restart would read, so that retention keeps them.

        The pin may lag behind; that only keeps more records.
        """
        if time.monotonic() < self._pin_again_at:
            return
        self._pin_again_at = time.monotonic() + _PIN_SECONDS
        for log in self.job.inputs:
            directory = log_behind(log.url)
            if directory is not None and log.name in step.inputs:
                with Log.open(directory, readonly=True) as reader:
                    start = step.inputs[log.name][0]
                    name = pin_name("pipeline", self.job.pipeline, self.job.processor)
                    reader.pin(name, reader.first_index if start is None else start)

    def _exactly_once(self, result: StepResult, step: Step) -> None:
        self._write_recovery_map(step)
        self.backing.write(
            Attempt(
                processor=step.processor,
                step=step.number,
                hash=step.hash,
                outputs=self.outputs.next_indices(),
                time=_now(),
            )
        )
        self.on_phase("attempt")
        self._write(result, step, check=True)

    def _at_most_once(self, result: StepResult, step: Step) -> None:
        """Record the step as read, then write it: a crash in between loses the step."""
        last = self.backing.last(step.processor).recovery
        if last is None or last.step < step.number:
            self._write_recovery_map(step)
            self._write(result, step, check=False)

    def _write_recovery_map(self, step: Step) -> None:
        self.backing.write(
            Recovery(
                processor=step.processor,
                step=step.number,
                inputs=dict(step.inputs),
                time=_now(),
            )
        )
        self.on_phase("recovery")

    def _write(self, result: StepResult, step: Step, *, check: bool) -> None:
        make_durable(self.job.checkpoint, step.number)
        self.outputs.write(result, step, self.job.epochs, check=check)
        self.on_phase("output")

    def _deliver(self, result: StepResult, step: Step) -> None:
        """Call the sink, at least once, with the hash by which it can detect duplicates."""
        self._write_recovery_map(step)
        frames = [
            output.rows.where(log.condition) if log.condition else output.rows
            for log, output in zip(self.job.inputs, result.outputs.values(), strict=True)
        ]
        self.job.deliver(*frames, step)
        self.on_phase("output")
        self.outputs.write_failures(result.failures(), step, self.job.epochs, check=True)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
