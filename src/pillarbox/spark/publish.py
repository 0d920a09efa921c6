"""Publishing a step: the one place where records of a pipeline become part of a log.

First what Spark wrote ahead is made durable; then each output, in order, takes the records and
the step's hash in one atomic commit, or is skipped because it has that hash. A crash between
two outputs is healed by the replay, which skips the first and does the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pillarbox.log import Log
from pillarbox.spark.commits import admit, commits_in, encode_meta, open_to_commit
from pillarbox.spark.staging import Written, collect_garbage, stage_records, staged_runs
from pillarbox.spark.steps import Step, make_durable

INLINE_BYTES_MAX = 4 << 20
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True)
class Terms:
    """On which terms a step is published."""

    strategy: str = EXACTLY_ONCE
    run: str = ""
    epoch: int | None = None
    checkpoint: str | None = None


def publish(step: Step, outputs: Mapping[str, tuple[str, list[Written]]], terms: Terms) -> int:
    """Make what the tasks wrote part of each output's log; how many records that were."""
    if terms.checkpoint is not None:
        make_durable(terms.checkpoint, step.batch_id)
    published = 0
    for _, (directory, written) in sorted(outputs.items()):
        with open_to_commit(directory) as log:
            check = terms.strategy == EXACTLY_ONCE
            # A batch without a task says nothing of its run: it is that of the batch before it.
            run = terms.run or next((x.run for x in commits_in(log, step.processor)), "")
            epoch = admit(log, step, run, terms.epoch, check=check)
            if epoch is not None:
                commit(log, step, encode_meta(step, epoch, run), written, terms.run)
                published += sum(each.rows for each in written)
                _clear_after(log, step.processor, run)
        collect_garbage(directory, step.processor, terms.run)
    return published


def commit(log: Log, step: Step, meta: bytes, written: Sequence[Written], run: str) -> None:
    """Append what the tasks wrote, in their order, with the metadata, in one atomic step."""
    first = log.next_index
    records = [record for each in written for record in each.records]
    if any(each.files for each in written) or sum(map(len, records)) > INLINE_BYTES_MAX:
        files: list[str] = []
        for each in written:
            if each.records:
                files.extend(stage_records(log.path, step.processor, run, each.records))
            files.extend(each.files)
        log.adopt(files, meta, verify=False)
    elif records:
        log.append_committed(records, meta)
    else:
        log.adopt([], meta)
    if step.processor:
        _keep(log, pin_name(step.processor), max(first - 1, 0))


def _clear_after(log: Log, processor: str, run: str) -> None:
    """Remove what runs have left that this one has replaced, and so can't commit any more."""
    others = staged_runs(log.path, processor) - {run}
    if others:
        for replaced in others & {each.run for each in commits_in(log, processor)}:
            collect_garbage(log.path, processor, replaced)


def _keep(log: Log, pin: str, index: int) -> None:
    """What says that a step was done outlives any retention, until the next step is done."""
    held = log.pins().get(f"pin:{pin}")
    if held is None or log.segment_base(held) != log.segment_base(index):
        log.pin(pin, index)


def pin_name(processor: str) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in processor)
    return f"processor.{safe}"[:128]
