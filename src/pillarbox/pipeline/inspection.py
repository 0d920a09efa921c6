"""Reports the last step of each processor and what a restart would do.

Read-only; safe while the pipeline is running.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pillarbox.pipeline.backing import read_states
from pillarbox.pipeline.checks import is_generator
from pillarbox.pipeline.graph import Processor
from pillarbox.pipeline.maps import ProcessorState, Range
from pillarbox.pipeline.paths import is_batch_done
from pillarbox.spark.steps import writer_id
from pillarbox.spark.table import table_at

if TYPE_CHECKING:
    from pillarbox.pipeline.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Restart:
    """What a restart of one processor does, and why."""

    action: Literal["begin", "again", "finish", "go on"]
    why: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One processor: its last step, and what a restart would do."""

    id: str
    kind: str
    strategy: str
    generation: int
    step: int | None
    hash: str | None
    inputs: Mapping[str, Range]
    outputs: Mapping[str, int]
    time: datetime.datetime | None
    restart: Restart
    failures: int


def inspect(pipeline: Pipeline) -> list[Finding]:
    """Return the last step of each processor, upstream first."""
    last = read_states(pipeline.paths.backing)
    return [
        _finding(pipeline, each, last.get(each.id, ProcessorState()))
        for each in pipeline.graph.in_order()
    ]


def _finding(pipeline: Pipeline, processor: Processor, last: ProcessorState) -> Finding:
    recovery, attempt = last.recovery, last.tried
    return Finding(
        processor.id,
        processor.kind,
        processor.strategy,
        last.generation,
        recovery.step if recovery else None,
        attempt.hash if attempt else None,
        recovery.inputs if recovery else {},
        attempt.outputs if attempt else {},
        getattr(attempt or recovery or last.reset, "time", None),
        restart(pipeline, processor, last),
        _failures(pipeline, processor),
    )


def restart(pipeline: Pipeline, processor: Processor, last: ProcessorState) -> Restart:
    """Return what a restart of this processor would do, given its last maps."""
    if is_generator(processor):
        return Restart("begin", "the generator starts again; its own code knows where to continue")
    if processor.kind == "stream" and processor.strategy == "at-least-once":
        return Restart(
            "again", "nothing is recorded: Spark repeats its last step if it did not finish"
        )
    writer = writer_id(processor.id, last.generation)
    recovery = last.recovery
    if processor.kind != "sink" and processor.strategy == "exactly-once":
        step = recovery.step if recovery else -1

        def committed(output: str, hash_: str) -> bool:
            table = table_at(pipeline.directory(output))
            return table is not None and table.holds_hash(writer, step, hash_)

        return restart_of_stream(last, committed)
    if recovery is None:
        return restart_of_stream(last, lambda *_: False)
    if is_batch_done(pipeline.paths.checkpoint(writer), recovery.step):
        return Restart("go on", f"step {recovery.step} is done")
    if processor.strategy == "at-most-once":
        return Restart("go on", f"step {recovery.step} may be missing, and is not run again")
    where = _ranges(recovery.inputs)
    return Restart("again", f"step {recovery.step} is delivered again, with the same hash: {where}")


def restart_of_stream(last: ProcessorState, committed: Callable[[str, str], bool]) -> Restart:
    """Return what a restart of an exactly-once stream would do.

    `committed(output, hash)` returns whether an output holds the hash.
    """
    recovery, attempt = last.recovery, last.tried
    if recovery is None:
        return Restart("begin", "it has not read anything yet")
    where = _ranges(recovery.inputs)
    if attempt is None:
        return Restart("again", f"step {recovery.step} had begun, nothing was attempted: {where}")
    present = [name for name in attempt.outputs if committed(name, attempt.hash)]
    missing = [name for name in attempt.outputs if name not in present]
    if not missing:
        return Restart("go on", f"step {attempt.step} is in {', '.join(present)}")
    if present:
        return Restart(
            "finish",
            f"step {attempt.step} is in {', '.join(present)} but not in {', '.join(missing)}: it is"
            f" run again for the missing outputs: {where}",
        )
    return Restart("again", f"step {attempt.step} was attempted, but not committed: {where}")


def _ranges(inputs: Mapping[str, Range]) -> str:
    """Describe the records that a step reads."""
    if not inputs:
        return "no Pillarbox input"
    spans = [f"{name} {start or 0} up to {end}" for name, (start, end) in inputs.items()]
    return ", ".join(spans)


def position(pipeline: Pipeline, processor: Processor, last: ProcessorState) -> dict[str, int]:
    """Return the first index of each input that a restart would read, as far as known."""
    if last.recovery is None:
        return dict(last.reset.inputs) if last.reset else {}
    done = restart(pipeline, processor, last).action == "go on"
    inputs = last.recovery.inputs.items()
    return {name: end if done else start or 0 for name, (start, end) in inputs}


def _failures(pipeline: Pipeline, processor: Processor) -> int:
    table = table_at(pipeline.errors_directory(processor.id))
    return 0 if table is None else table.end_index
