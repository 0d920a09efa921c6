"""Moves a processor to other offsets of its inputs. The pipeline must not be running.

A reset starts a new generation: the step numbers start at 0 again, and steps of different
generations are never confused. Existing output is kept, so the outputs may hold the results of
the same records twice, once from each generation.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import Processor
from pillarbox.pipeline.inspection import position
from pillarbox.pipeline.maps import ProcessorState, Reset
from pillarbox.pipeline.paths import open_readable
from pillarbox.pipeline.running import acquire_run
from pillarbox.spark.files import files_at
from pillarbox.spark.location import without_secret
from pillarbox.spark.options import time_ns
from pillarbox.spark.steps import writer_id
from pillarbox.spark.table import table_at

if TYPE_CHECKING:
    from pillarbox.pipeline.pipeline import Pipeline


def reset(pipeline: Pipeline, ids: Sequence[str], to: str) -> list[Reset]:
    """Move processors to `earliest`, `latest`, `last` (their last position), an index or a time."""
    pipeline.check()
    for processor_id in ids:
        pipeline.graph.processor(processor_id)
    chosen = [each for each in pipeline.graph.in_order() if each.id in ids and each.inputs]
    with acquire_run(pipeline.paths) as running, running.backing() as backing:
        running.claim()
        for processor in chosen:
            last = backing.last(processor.id)
            fence(pipeline, processor, writer_id(processor.id, last.generation))
        resets = [_reset_of(pipeline, each, backing.last(each.id), to) for each in chosen]
        for each in resets:
            old = writer_id(each.processor, each.generation - 1)
            backing.write(each)
            files_at(pipeline.paths.path).remove(f"checkpoints/{old}")
    return resets


def fence(pipeline: Pipeline, processor: Processor, writer: str) -> None:
    """Fence displaced runs of a remote store. In a directory the lock rules them out."""
    if pipeline.paths.on_remote_store:
        outputs = map(pipeline.directory, processor.output_names)
        for location in (*outputs, pipeline.errors_directory(processor.id)):
            if (table := table_at(location)) is not None:
                table.claim(writer)


def _reset_of(pipeline: Pipeline, processor: Processor, last: ProcessorState, to: str) -> Reset:
    last_offsets = position(pipeline, processor, last) if to == "last" else {}
    inputs = {
        name: _offset_of(pipeline, name, to, last_offsets.get(name, 0))
        for name in processor.input_names
    }
    return Reset(
        processor=processor.id,
        generation=last.generation + 1,
        inputs=inputs,
        time=datetime.datetime.now(datetime.UTC),
    )


def _offset_of(pipeline: Pipeline, name: str, to: str, last_offset: int) -> int:
    url = pipeline.graph.log(name).url
    readable = open_readable(url)
    if readable is None:
        raise PipelineError(
            f"there is no log at {without_secret(url)} yet, so it has no such offset"
        )
    with readable as log:
        if to == "earliest":
            return log.first_index
        if to == "latest":
            return log.end_index
        if to == "last" or to.isdecimal():
            index = last_offset if to == "last" else int(to)
            return max(log.first_index, min(index, log.end_index))
        return log.index_at_time(time_ns("--to", to))
