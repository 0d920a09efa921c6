"""Queries by Spark Connect: the driver is a server, and a process there takes the batches.

That process has a file system in common with this one, and Pillarbox installed. It looks whether
this process still runs the pipeline before it begins a batch, and writes the maps itself; what it
did, Spark tells us. Files that were sent to the server (`ship`) are not seen by streams, so what
Spark pickles carries the modules of the pipeline.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pillarbox.pipeline.batch import Batches, Outputs, Work
from pillarbox.pipeline.places import Places
from pillarbox.pipeline.progress import take
from pillarbox.pipeline.query import INPUT, Query, StoppingError
from pillarbox.pipeline.recovery import Backing
from pillarbox.pipeline.references import Carried, carried, files_of, referring, resolved
from pillarbox.pipeline.running import may_begin
from pillarbox.pipeline.shipping import modules_of
from pillarbox.spark.shipping import OWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOOK_SECONDS = 0.5


class ConnectQuery(Query):
    """A processor that Spark runs, with its driver elsewhere."""

    def __init__(self, *arguments: Any, token: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._token = token
        self._noted = -1
        self._files = files_of(set(modules_of(self.pipeline.graph)) - {OWN})

    def portable(self, thing: Any) -> Carried:
        return carried(thing, self._files)

    def taker(self, work: Work) -> Callable[[DataFrame, int], None]:
        self._given = work
        self.status.of(self.processor.id).written = self.written.next_indices()
        return RemoteBatches(work, self.pipeline.places, self._token, self._files)

    def wait_for_end(self, active: Any) -> None:
        try:
            while not active.awaitTermination(_LOOK_SECONDS):
                self._catch_up(active)
        finally:
            self._catch_up(active)

    def _catch_up(self, active: Any) -> None:
        """Take the batches into the status that Spark has told of since."""
        for progress in active.recentProgress:
            if progress.batchId > self._noted and "addBatch" in progress.durationMs:
                self._noted = progress.batchId
                before = self.status.of(self.processor.id).written
                milliseconds = progress.batchDuration
                self.note(self._given.step(progress.batchId), before, milliseconds / 1000)
                take(self.status, self.processor.id, milliseconds)

    def inputs_in_plan(self, rows: DataFrame) -> list[str | None]:
        plan: Any = rows
        relation = plan._plan.plan(plan._session.client)
        return [_input_of(each) for each in _reads(relation) if each.is_streaming]


def _reads(message: Any) -> Iterator[Any]:
    """What a plan reads, from left to right: `Read` messages, wherever they are in it."""
    if message.DESCRIPTOR.name == "Read":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else [value]:
            yield from _reads(each)


def _input_of(read: Any) -> str | None:
    ours = read.data_source.format == "pillarbox"
    return read.data_source.options[INPUT] if ours else None


class RemoteBatches:
    """Takes batches in another process, which may lack the pipeline's modules."""

    def __init__(self, work: Work, places: Places, token: str, files: Mapping[str, bytes]) -> None:
        self._places = places
        self._token = token
        self._directory = os.getcwd()
        # Types stay here: nothing is decoded there, and a Struct can't be pickled by value.
        inputs = tuple(replace(log, body_type=None) for log in work.inputs)
        deliver = referring(work.deliver)
        self._work = carried(replace(work, inputs=inputs, deliver=deliver), files)
        self._batches: Batches | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if not may_begin(self._places, self._token):
            raise StoppingError("the run that this batch is for has ended, or is about to")
        if self._batches is None:
            self._batches = self._unpacked()
        self._batches.take(rows, batch_id)

    def _unpacked(self) -> Batches:
        with contextlib.suppress(FileNotFoundError):
            os.chdir(self._directory)  # a path that a module names is meant from there
        work: Work = resolved(self._work)
        work = replace(work, deliver=resolved(work.deliver))
        backing = Backing(self._places.backing, shared=True)
        return Batches(work, backing, Outputs(work.outputs))
