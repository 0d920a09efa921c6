"""Committing steps to a log: what the log remembers of them, and who may write.

Each commit carries the processor, the step's hash and inputs, the run and its epoch, in the
same frame that makes the records part of the log. A step whose hash is there was done. A run
with an older epoch than the newest commit's has been replaced, and is refused. All checks are
made with the log's lock held, so no other driver can come between a check and its commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from pillarbox.log import Commit, Log, LogLockedError
from pillarbox.log.frame import EncodedRecords
from pillarbox.log.log import SEGMENT_BYTES
from pillarbox.log.readable_log import ReadableLog
from pillarbox.spark.errors import DivergedError, FencedError
from pillarbox.spark.location import local_directory
from pillarbox.spark.steps import Input, Step

Records = Sequence[bytes] | EncodedRecords
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
LOCK_SECONDS = 60.0
_LOCK_POLL_SECONDS = 0.01
_FORMAT = "pillarbox-step"


class _Meta(msgspec.Struct, array_like=True):
    """The metadata of a commit, as bytes in the log."""

    format: str
    processor: str
    hash: str | None
    batch_id: int
    inputs: list[tuple[str | None, str | None]]
    epoch: int
    run: str


@dataclass(frozen=True, slots=True)
class StepCommit:
    """A step as recorded in its output."""

    processor: str
    #: None if an earlier version only claimed an epoch with it.
    hash: str | None
    batch_id: int
    inputs: tuple[Input, ...]
    epoch: int
    run: str
    first_index: int
    end_index: int
    time_ns: int


def step_commits(url: str, processor: str | None = None) -> Iterator[StepCommit]:
    """The steps recorded in a log, newest first."""
    with Log.open(local_directory(url), readonly=True) as log:
        yield from commits_in(log, processor)


def last_commit(url: str, processor: str) -> StepCommit | None:
    """The newest step of a processor in a log; None if there is none."""
    return next((each for each in step_commits(url, processor) if each.hash is not None), None)


def commits_in(log: ReadableLog, processor: str | None) -> Iterator[StepCommit]:
    """The steps of an open log, newest first."""
    for commit in log.commits():
        found = _decode(commit)
        if found is not None and processor in (None, found.processor):
            yield found


def open_to_commit(directory: str, *, segment_bytes: int = SEGMENT_BYTES) -> Log:
    """Open a log for writing, and wait for the lock if another writer holds it."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return Log.open(
                directory, segment_bytes=segment_bytes, prepare_ahead=False, check="footer"
            )
        except LogLockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOCK_POLL_SECONDS)


def publish(
    directory: str, step: Step, records: Records, *, strategy: str = EXACTLY_ONCE, run: str = ""
) -> None:
    """Append the records and the step's hash in one frame, unless the log has that hash."""
    with open_to_commit(directory) as log:
        first = log.next_index
        # A batch without tasks does not know its run: it is that of the batch before it.
        known = run or next((each.run for each in commits_in(log, step.processor)), "")
        epoch = admit(log, step, known, check=strategy == EXACTLY_ONCE)
        if epoch is not None:
            log.append_committed(records, encode_meta(step, epoch, known))
            _pin_newest(log, pin_name(step.processor), max(first - 1, 0))


def _pin_newest(log: Log, pin: str, index: int) -> None:
    """Pin the newest commit, so that retention can't make the log forget its last step."""
    held = log.pins().get(f"pin:{pin}")
    if held is None or log.segment_base(held) != log.segment_base(index):
        log.pin(pin, index)


def pin_name(processor: str) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in processor)
    return f"processor.{safe}"[:128]


def admit(log: Log, step: Step, run: str, *, check: bool = True) -> int | None:
    """The epoch to commit the step with; None if it was done. Raises if it may not be done.

    Without `check` a step is done as often as it is asked for: at least once.
    """
    found = list(_relevant_commits(log, step, run))
    epoch = _epoch(log, step.processor, found, run)
    if not check:
        return epoch
    if any(each.hash == step.hash for each in found):
        return None
    done = next((each for each in found if each.hash is not None), None)
    if done is not None and step.number >= 0:
        _check_history(log, done, step)
    return epoch


def _check_history(log: Log, done: StepCommit, step: Step) -> None:
    """A step may follow the last one, or come after a gap; never go back or start elsewhere."""
    ends = [each.end for each in done.inputs]
    if done.batch_id < step.number - 1:
        return
    if done.batch_id == step.number - 1 and ends == step.starts:
        return
    raise DivergedError(
        f"{step.processor!r} has done batch {done.batch_id} into {log.path}, up to {ends}, but its"
        f" checkpoint is about to do batch {step.number} from {step.starts}: they do not belong"
        " together. Restore the checkpoint, or give this query a processor id of its own"
    )


def _relevant_commits(log: Log, step: Step, run: str) -> Iterator[StepCommit]:
    """The commits by which a step is judged, newest first, no further back than needed."""
    for found in commits_in(log, step.processor):
        yield found
        follows = found.batch_id == step.number - 1 and found.run == run
        if found.hash == step.hash or (follows and step.number >= 0):
            return


def _epoch(log: Log, processor: str, found: list[StepCommit], run: str) -> int:
    newest = found[0] if found else None
    if newest is None:
        return 1
    if newest.run == run:
        return newest.epoch
    if not any(each.run == run for each in found):
        return newest.epoch + 1
    raise FencedError(
        f"a later run of {processor!r} has taken over {log.path} (epoch {newest.epoch}); this one"
        " must stop, and nothing that it does now is written"
    )


def encode_meta(step: Step, epoch: int, run: str) -> bytes:
    inputs = [(each.start, each.end) for each in step.offsets]
    meta = _Meta(_FORMAT, step.processor, step.hash, step.number, inputs, epoch, run)
    return msgspec.msgpack.encode(meta)


def _decode(commit: Commit) -> StepCommit | None:
    """None if the commit is not one of ours."""
    try:
        meta = msgspec.msgpack.decode(commit.meta, type=_Meta)
    except msgspec.MsgspecError:
        return None
    if meta.format != _FORMAT:
        return None
    return StepCommit(
        meta.processor,
        meta.hash,
        meta.batch_id,
        tuple(Input(*each) for each in meta.inputs),
        meta.epoch,
        meta.run,
        commit.first_index,
        commit.end_index,
        commit.time_ns,
    )
