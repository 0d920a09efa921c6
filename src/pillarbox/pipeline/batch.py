"""Runs the steps of one stream or sink, wherever Spark calls for them.

A step is one batch of Spark's. Its inputs are fixed before it runs (Spark's offset file, our
recovery map), so running it again reads the same records and has the same hash. With Spark
Connect the batches run in a process of the server, so `BatchJob` can be pickled, and everything
else is in files.
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
from pillarbox.spark.steps import Step, make_durable, read_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PIN_SECONDS = 5.0
#: Called after each phase of a step: `begun`, `recovery`, `attempt`, `output`. Tests interrupt
#: steps there.
OnPhase = Callable[[str], None]


class InterruptedStepError(Exception):
    """Raised by `on_phase` to end a run as a crash would: the processor is not restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """What to do with the batches of a processor."""

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
    #: Where the first batch begins, if Spark does not say.
    begins: Mapping[str, int]
    #: How often the processor was reset.
    generation: int
    #: The epoch of this run in each output.
    epochs: Mapping[str, int]
    checkpoint: str
    #: Makes the output rows of a step from the rows of the query.
    produce: Any

    def step(self, batch_id: int) -> Step:
        """The step that a batch is, with the range that it reads of each input."""
        read = read_step(self.checkpoint, batch_id, self.processor, self.generation)
        inputs: dict[str, Range] = {}
        for name, offset in zip(self.sources, read.offsets, strict=True):
            if name is not None and offset.end is not None:
                start = self.begins.get(name) if offset.start is None else _index(offset.start)
                inputs[name] = (start, _index(offset.end))
        return replace(read, inputs=inputs)


def _index(offset: str) -> int:
    return int(json.loads(offset)["index"])


@dataclass(slots=True)
class BatchRunner:
    """Runs batch after batch."""

    job: BatchJob
    backing: BackingLog
    outputs: Outputs
    on_phase: OnPhase = lambda _: None
    _pin_again_at: float = 0.0

    def run(self, rows: DataFrame, step: Step) -> None:
        produce: Produce = self.job.produce
        self._pin(step)
        with produce(rows, step.inputs) as product:
            self.on_phase("begun")
            if self.job.deliver is not None:
                self._deliver(product, step)
            elif self.job.strategy == "exactly-once":
                self._exactly_once(product, step)
            elif self.job.strategy == "at-least-once":
                self._write(product, step, check=False)
            else:
                self._at_most_once(product, step)

    def _pin(self, step: Step) -> None:
        """Keep retention from what a restart would read. A pin that is behind does no harm."""
        if time.monotonic() < self._pin_again_at:
            return
        self._pin_again_at = time.monotonic() + _PIN_SECONDS
        for log in self.job.inputs:
            directory = log_behind(log.url)
            if directory is not None and log.name in step.inputs:
                with Log.open(directory, readonly=True) as reader:
                    start = step.inputs[log.name][0]
                    name = f"pipeline.{self.job.pipeline}.{self.job.processor}"
                    reader.pin(name, reader.first_index if start is None else start)

    def _exactly_once(self, product: StepResult, step: Step) -> None:
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
        self._write(product, step, check=True)

    def _at_most_once(self, product: StepResult, step: Step) -> None:
        """Recorded as read before it is written: a crash in between loses the step."""
        known = self.backing.last(step.processor).recovery
        if known is None or known.step < step.number:
            self._write_recovery_map(step)
            self._write(product, step, check=False)

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

    def _write(self, product: StepResult, step: Step, *, check: bool) -> None:
        make_durable(self.job.checkpoint, step.number)
        self.outputs.write(product, step, self.job.epochs, check=check)
        self.on_phase("output")

    def _deliver(self, product: StepResult, step: Step) -> None:
        """At least once, with the hash by which the sink can recognise a repetition."""
        self._write_recovery_map(step)
        frames = [
            made.rows.where(log.condition) if log.condition else made.rows
            for log, made in zip(self.job.inputs, product.outputs.values(), strict=True)
        ]
        self.job.deliver(*frames, step)
        self.on_phase("output")
        self.outputs.write_failures(product.failures(), step, self.job.epochs, check=True)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
