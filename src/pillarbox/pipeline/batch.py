"""What is done with each batch of a stream or sink, wherever Spark calls for it.

With Spark Connect that is another process, which shares nothing with the one that runs the
pipeline but the file system: so `Work` can be pickled, and all the rest is in files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import pillarbox.spark as ps
from pillarbox.log import Log, LogReader
from pillarbox.pipeline.graph import ERRORS, LogRef, Strategy
from pillarbox.pipeline.places import log_behind
from pillarbox.pipeline.recovery import Backing, Range
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
    #: The directory of each output.
    outputs: Mapping[str, str]
    errors_url: str
    #: Whether there may be bodies that can't be read.
    can_fail: bool
    #: The input that each source of the query reads, in the order of Spark's offsets.
    sources: Sequence[str | None]
    #: Where a first batch begins, if Spark does not say it.
    begins: Mapping[str, int]
    #: The id that steps are committed under, and how often the processor was reset.
    writer: str
    generation: int
    epoch: int | None
    checkpoint: str

    @property
    def output_urls(self) -> dict[str, str]:
        """The logs that a step writes to, by the name in the rows' `output`."""
        urls = {name: f"file:{directory}" for name, directory in self.outputs.items()}
        return urls | {ERRORS: self.errors_url}

    def step(self, batch_id: int) -> Step:
        """The step that a batch is.

        Spark does not say where its first batch begins; the reset that led there does.
        """
        read = ps.read_step(self.checkpoint, batch_id, self.writer)
        offsets = [(each.start, each.end) for each in read.inputs]
        inputs: dict[str, Range] = {
            name: (self.begins.get(name) if start is None else start, end)
            for name, (start, end) in ranges(offsets, self.sources).items()
        }
        return Step(self.processor, batch_id, read.hash, inputs, self.generation)


class Outputs:
    """How far the logs are that a processor writes."""

    def __init__(self, directories: Mapping[str, str]) -> None:
        self._directories = directories
        self._readers: dict[str, LogReader] = {}

    def next_indices(self) -> dict[str, int]:
        """The first index of each that is free."""
        return {name: self._refreshed(name).end_index for name in self._directories}

    def _refreshed(self, name: str) -> LogReader:
        reader = self._readers.get(name)
        if reader is None:
            reader = self._readers[name] = Log.open(self._directories[name], readonly=True)
        reader.refresh()
        return reader

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


@dataclass(slots=True)
class Batches:
    """Does that work, batch after batch."""

    work: Work
    backing: Backing
    outputs: Outputs
    window: Window = lambda _: None
    _pin_again_at: float = 0.0

    def take(self, rows: DataFrame, batch_id: int) -> Step:
        """Do one; the step that it was."""
        step = self.work.step(batch_id)
        self._pin(step)
        if self.work.deliver is None:
            self._write(rows, step)
        else:
            self._deliver(rows, step)
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

    # -- streams and sources -----------------------------------------------------------------

    def _write(self, rows: DataFrame, step: Step) -> None:
        work = self.work
        options = {
            "processor": work.writer,
            "outputs": json.dumps(work.output_urls),
            "checkpointLocation": work.checkpoint,
            "batchId": str(step.number),
        }
        if work.epoch is not None:
            options["epoch"] = str(work.epoch)

        def write(exactly_once: bool) -> None:
            strategy = "exactly-once" if exactly_once else "at-least-once"
            writer = rows.write.format("pillarbox").mode("append")
            writer.options(**options, strategy=strategy).save()

        acts = Acts(self.backing, self.outputs.next_indices, write, self.window)
        acts.run(step, work.strategy)

    # -- sinks ---------------------------------------------------------------------------------

    def _deliver(self, rows: DataFrame, step: Step) -> None:
        several = len(self.work.inputs) > 1 or self.work.can_fail
        held = rows.persist() if several else rows
        try:
            frames = [_frame_of(log, held) for log in self.work.inputs]
            acts = Acts(self.backing, dict, lambda _: None, self.window)
            acts.deliver(step, lambda each: self.work.deliver(*frames, each))
            if self.work.can_fail:
                self._write_failures(held, step)
        finally:
            if several:
                held.unpersist()

    def _write_failures(self, held: DataFrame, step: Step) -> None:
        failed = held.where(F.col("output") == ERRORS).select("body")
        if not failed.isEmpty():
            failed.write.format("pillarbox").mode("append").options(
                processor=self.work.writer, step=step.hash
            ).save(self.work.errors_url)


def _frame_of(log: LogRef, held: DataFrame) -> DataFrame:
    frame = held.where(F.col("output") == log.name).select(f"`{column_of(log)}`.*")
    return frame.where(log.condition) if log.condition else frame


def column_of(log: LogRef) -> str:
    """The column for the rows of one of several inputs; no name of a log begins like this."""
    return f"_{log.name}"
