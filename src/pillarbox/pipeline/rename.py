"""Renames a processor: moves its state, which is stored under its id, to the new id.

A processor whose id was changed in the code would start from the beginning and write everything
twice. So a run does not start if a processor without state replaces one that is no longer in the
pipeline but has state.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from pillarbox.log import Log
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import Processor
from pillarbox.pipeline.maps import Attempt, Map, ProcessorState, Renamed
from pillarbox.pipeline.paths import is_batch_done, log_behind, newest_batch
from pillarbox.pipeline.reset import fence
from pillarbox.pipeline.running import acquire_run
from pillarbox.pipeline.status import rename_in_status
from pillarbox.spark.commits import pin_name
from pillarbox.spark.files import files_at
from pillarbox.spark.steps import read_step, writer_id
from pillarbox.spark.table import TableLog, is_table

if TYPE_CHECKING:
    from pillarbox.pipeline.pipeline import Pipeline


def orphans(pipeline: Pipeline, states: Mapping[str, ProcessorState]) -> list[str]:
    """Return the ids that have state but are no longer in the pipeline."""
    declared = {each.id for each in pipeline.graph.processors}
    return [id_ for id_, last in states.items() if id_ not in declared and last.renamed is None]


def check_renamed(pipeline: Pipeline, states: Mapping[str, ProcessorState]) -> None:
    """Raise a PipelineError if a processor seems to have been renamed."""
    orphaned = orphans(pipeline, states)
    for each in pipeline.graph.processors:
        old = next(
            (x for x in orphaned if each.id not in states and _replaces(each, states[x])), None
        )
        if old is not None:
            raise PipelineError(
                f"the processor {each.id!r} has no state, and {old!r}, which has, is no longer in"
                " the pipeline. If you renamed it, move its state with 'pillarbox pipeline rename"
                f" TARGET {old} {each.id}'. If it is a new processor, choose where it starts with"
                f" 'pillarbox pipeline reset TARGET {each.id} --to earliest'"
            )


def _replaces(processor: Processor, last: ProcessorState) -> bool:
    """Return whether a processor writes the outputs, or as a sink reads the inputs, of another."""
    if last.attempt is not None:
        return not set(processor.output_names).isdisjoint(last.attempt.outputs)
    read = last.recovery or last.reset
    sink = processor.kind == "sink"
    return sink and read is not None and not set(processor.input_names).isdisjoint(read.inputs)


def rename(pipeline: Pipeline, old: str, new: str) -> None:
    """Move the state of a processor from its old id to its id in the pipeline."""
    processor = pipeline.graph.processor(new)
    with acquire_run(pipeline.paths) as running, running.backing() as backing:
        running.claim()
        states = backing.states()
        if old not in orphans(pipeline, states):
            orphaned = ", ".join(orphans(pipeline, states)) or "none"
            raise PipelineError(
                f"there is no state of a processor {old!r} that is no longer in the pipeline;"
                f" such processors: {orphaned}"
            )
        if new in states:
            raise PipelineError(f"the processor {new!r} already has state of its own")
        last = states[old]
        fence(pipeline, processor, writer_id(old, last.generation))
        _move_files(pipeline, old, new, last)
        maps = _maps_under(pipeline, processor, last)
        now = datetime.datetime.now(datetime.UTC)
        backing.write(*maps, Renamed(processor=old, to=new, time=now))
        rename_in_status(pipeline.paths.status, old, new)
    _unpin(pipeline, old, processor)


def _move_files(pipeline: Pipeline, old: str, new: str, last: ProcessorState) -> None:
    files, generation = files_at(pipeline.paths.path), last.generation
    before, after = (writer_id(each, generation) for each in (old, new))
    checkpoint = pipeline.paths.checkpoint(before)
    newest = newest_batch(checkpoint)
    resumed = bool(files.names(f"checkpoints/{after}"))
    if newest is not None and not resumed and not is_batch_done(checkpoint, newest):
        raise PipelineError(
            f"the last step of {old!r} was interrupted, and would not be recognised under another"
            " id. Give the processor its old id again, run the pipeline once with --now, and then"
            " rename it"
        )
    files.move(f"checkpoints/{before}", f"checkpoints/{after}")
    if not is_table(pipeline.errors_directory(new)):
        files.move(f"errors/{old}", f"errors/{new}")


def _maps_under(pipeline: Pipeline, processor: Processor, last: ProcessorState) -> list[Map]:
    """Return the newest maps with the new id; commit the new hash of the last step."""
    maps: list[Map] = [msgspec.structs.replace(x, processor=processor.id) for x in last.maps()]
    if last.tried is None:
        return maps
    checkpoint = pipeline.paths.checkpoint(writer_id(processor.id, last.generation))
    step = read_step(checkpoint, last.tried.step, processor.id, last.generation)
    for name in processor.output_names:
        TableLog(pipeline.directory(name)).commit([], step)
    return [
        msgspec.structs.replace(each, hash=step.hash) if isinstance(each, Attempt) else each
        for each in maps
    ]


def _unpin(pipeline: Pipeline, old: str, processor: Processor) -> None:
    for name in processor.input_names:
        directory = log_behind(pipeline.graph.log(name).url)
        if directory is not None:
            with Log.open(directory, readonly=True) as log:
                log.unpin(pin_name("pipeline", pipeline.name, old))
