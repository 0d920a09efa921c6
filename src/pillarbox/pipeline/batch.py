"""What is done with each batch of a stream or sink, wherever Spark calls for it.

With Spark Connect that is another process, which shares nothing with the one that runs the
pipeline but the file system: so `Work` can be pickled, and all the rest is in files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pillarbox.spark as ps
from pillarbox.log import Log
from pillarbox.pipeline.graph import LogRef, Strategy
from pillarbox.pipeline.maps import Range
from pillarbox.pipeline.outputs import Outputs
from pillarbox.pipeline.places import log_behind
from pillarbox.pipeline.product import Produce, Product
from pillarbox.pipeline.recovery import Maps
from pillarbox.pipeline.step import Acts, Step, Window, ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a processor is to do with its batches."""

    pipeline: str
    processor: str
    strategy: Strategy
    #: What a sink does with a batch; a stream writes its outputs.
    deliver: Any
    inputs: tuple[LogRef, ...]
    #: The directory of each output, and of the error log.
    outputs: Mapping[str, str]
    errors: str
    #: The input that each source of the query reads, in the order of Spark's offsets.
    sources: Sequence[str | None]
    #: Where a first batch begins, if Spark does not say it.
    begins: Mapping[str, int]
    #: The id that steps are committed under, and how often the processor was reset.
    writer: str
    generation: int
    #: The epoch of this run in each output.
    epochs: Mapping[str, int]
    checkpoint: str
    #: What takes the rows of a step out of the query.
    produce: Any

    def read(self, batch_id: int) -> ps.Step:
        """The step that a batch is, as its outputs know it."""
        return ps.read_step(self.checkpoint, batch_id, self.writer)

    def step(self, read: ps.Step) -> Step:
        """The same, as people and functions know it.

        Spark does not say where its first batch begins; the reset that led there does.
        """
        offsets = [(each.start, each.end) for each in read.inputs]
        inputs: dict[str, Range] = {
            name: (self.begins.get(name) if start is None else start, end)
            for name, (start, end) in ranges(offsets, self.sources).items()
        }
        return Step(self.processor, read.batch_id, read.hash, inputs, self.generation)


@dataclass(slots=True)
class Batches:
    """Does that work, batch after batch."""

    work: Work
    backing: Maps
    outputs: Outputs
    window: Window = lambda _: None
    _pin_again_at: float = 0.0

    def take(self, rows: DataFrame, batch_id: int) -> Step:
        """Do one; the step that it was."""
        read = self.work.read(batch_id)
        step = self.work.step(read)
        produce: Produce = self.work.produce
        self._pin(step)
        with produce(rows, step.inputs) as product:
            if self.work.deliver is None:
                self._write(product, step, read)
            else:
                self._deliver(product, step, read)
        return step

    def _pin(self, step: Step) -> None:
        """Keep retention from what a restart would read. A pin that is behind does no harm."""
        if time.monotonic() < self._pin_again_at:
            return
        self._pin_again_at = time.monotonic() + _PIN_SECONDS
        for log in self.work.inputs:
            directory = log_behind(log.url)
            if directory is not None and log.name in step.inputs:
                with Log.open(directory, readonly=True) as reader:
                    start = step.inputs[log.name][0]
                    name = f"pipeline.{self.work.pipeline}.{self.work.processor}"
                    reader.pin(name, reader.first_index if start is None else start)

    def _write(self, product: Product, step: Step, read: ps.Step) -> None:
        def write(exactly_once: bool) -> None:
            ps.make_durable(self.work.checkpoint, read.batch_id)
            self.outputs.write(product, read, self.work.epochs, check=exactly_once)

        acts = Acts(self.backing, self.outputs.next_indices, write, self.window)
        acts.run(step, self.work.strategy)

    def _deliver(self, product: Product, step: Step, read: ps.Step) -> None:
        frames = [
            made.rows.where(log.condition) if log.condition else made.rows
            for log, made in zip(self.work.inputs, product.outputs.values(), strict=True)
        ]
        acts = Acts(self.backing, dict, lambda _: None, self.window)
        acts.deliver(step, lambda each: self.work.deliver(*frames, each))
        self.outputs.write_failures(product.failures(), read, {}, check=True)
