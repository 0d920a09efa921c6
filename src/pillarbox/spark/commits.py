"""Committing steps to a log: what the log remembers of them, and who may write.

Each commit carries the processor, the step's hash and inputs, the run and its epoch, in the
same frame that makes the records part of the log. A step whose hash is there was done. A run
with an older epoch than the newest commit's has been replaced, and is refused. All checks are
made with the log's lock held, so no other driver can come between a check and its commit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pillarbox.log import Commit, Log, LogLockedError
from pillarbox.log.frame import EncodedRecords
from pillarbox.log.log import SEGMENT_BYTES
from pillarbox.log.readable_log import ReadableLog
from pillarbox.spark.errors import DivergedError, FencedError
from pillarbox.spark.location import local_directory
from pillarbox.spark.steps import Input, Step, make_durable

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
    forget: bool = False


@dataclass(frozen=True, slots=True)
class StepCommit:
    """A step as its output remembers it; a claim of an epoch has no hash."""

    processor: str
    hash: str | None
    batch_id: int
    inputs: tuple[Input, ...]
    epoch: int
    run: str
    first_index: int
    end_index: int
    time_ns: int
    #: Whether what this processor did earlier no longer counts: it was reset.
    forget: bool = False


def step_commits(url: str, processor: str | None = None) -> Iterator[StepCommit]:
    """The steps that a log remembers, newest first."""
    with Log.open(local_directory(url), readonly=True) as log:
        yield from commits_in(log, processor)


def last_commit(url: str, processor: str) -> StepCommit | None:
    """The newest step of a processor in a log; None if there is none since it was reset."""
    for commit in step_commits(url, processor):
        if commit.forget:
            return None
        if commit.hash is not None:
            return commit
    return None


def claim(urls: str | Sequence[str], processor: str, *, forget: bool = False) -> int:
    """A new epoch for a processor, durable in its outputs: older runs can't write any more.

    With `forget` the steps done so far no longer count: the processor may do them again.
    """
    directories = [local_directory(url) for url in ([urls] if isinstance(urls, str) else urls)]
    epoch = 1
    for directory in directories:
        if os.path.isdir(directory):
            with Log.open(directory, readonly=True) as log:
                newest = next(commits_in(log, processor), None)
                epoch = max(epoch, newest.epoch + 1 if newest is not None else 1)
    for directory in directories:
        with open_to_commit(directory) as log:
            newest = next(commits_in(log, processor), None)
            if newest is not None and newest.epoch >= epoch:
                raise FencedError(
                    f"another run of {processor!r} is being started on {directory} at this moment;"
                    " let one of them go on, and stop the other"
                )
            log.append_committed([], encode_meta(Step(processor, -1, ""), epoch, "", forget=forget))
    return epoch


def commits_in(log: ReadableLog, processor: str | None) -> Iterator[StepCommit]:
    """The steps of an open log, newest first."""
    for commit in log.newest_commits():
        found = _decode(commit)
        if found is not None and processor in (None, found.processor):
            yield found


def open_to_commit(directory: str, *, segment_bytes: int = SEGMENT_BYTES) -> Log:
    """Become the log's writer for a moment, after whoever is."""
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
    step: Step | None,
    outputs: Mapping[str, Records],
    *,
    strategy: str = EXACTLY_ONCE,
    run: str = "",
    epoch: int | None = None,
    checkpoint: str | None = None,
) -> int:
    """Append each log's records with the step's hash in one frame, unless the log has that hash.

    Returns the number of records appended. What Spark wrote ahead is made durable first. A crash
    between two logs is healed by the replay, which skips the first and does the second. Without a
    step, the records are just appended.
    """
    if step is not None and checkpoint is not None:
        make_durable(checkpoint, step.number)
    published = 0
    for directory, records in outputs.items():
        with open_to_commit(directory) as log:
            first = log.next_index
            if step is None:
                assert not isinstance(records, EncodedRecords)
                log.append_many(records)
            else:
                # A batch without tasks does not know its run: it is that of the batch before it.
                known = run or next((x.run for x in commits_in(log, step.processor)), "")
                given = admit(log, step, known, epoch, check=strategy == EXACTLY_ONCE)
                if given is None:
                    continue
                log.append_committed(records, encode_meta(step, given, known))
                _keep(log, pin_name(step.processor), max(first - 1, 0))
            published += len(records)
    return published


def _keep(log: Log, pin: str, index: int) -> None:
    """Pin the newest commit, so that retention can't make the log forget its last step."""
    held = log.pins().get(f"pin:{pin}")
    if held is None or log.segment_base(held) != log.segment_base(index):
        log.pin(pin, index)


def pin_name(processor: str) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in processor)
    return f"processor.{safe}"[:128]


def admit(log: Log, step: Step, run: str, epoch: int | None, *, check: bool = True) -> int | None:
    """The epoch to commit the step with; None if it was done. Raises if it may not be done.

    Without `check` a step is done as often as it is asked for: at least once.
    """
    found = list(_bearing_on(log, step, run))
    given = _epoch(log, step.processor, found, run, epoch)
    if not check:
        return given
    if any(each.hash == step.hash for each in found):
        return None
    done = next((each for each in found if each.hash is not None), None)
    if done is not None and step.number >= 0:
        _check_history(log, done, step)
    return given


def _check_history(log: Log, done: StepCommit, step: Step) -> None:
    """A step may follow the last one, or come after a gap; never go back or start elsewhere."""
    ends = [each.end for each in done.inputs]
    if done.batch_id < step.number - 1:
        return
    if done.batch_id == step.number - 1 and ends == step.starts:
        return
    raise DivergedError(
        f"{step.processor!r} has done batch {done.batch_id} into {log.path}, up to {ends}, but its"
        f" checkpoint is about to do batch {step.number} from {step.starts}: they are not of one"
        " history. Restore the checkpoint, give this query a processor id of its own, or reset the"
        " processor"
    )


def _bearing_on(log: Log, step: Step, run: str) -> Iterator[StepCommit]:
    """The commits that bear on a step: newest first, no further back than is needed."""
    for found in commits_in(log, step.processor):
        yield found
        follows = found.batch_id == step.number - 1 and found.run == run
        if found.forget or found.hash == step.hash or (follows and step.number >= 0):
            return


def _epoch(log: Log, processor: str, found: list[StepCommit], run: str, epoch: int | None) -> int:
    newest = found[0] if found else None
    if newest is None:
        return 1 if epoch is None else epoch
    if epoch is None and newest.run == run:
        return newest.epoch
    if epoch is None and not any(each.run == run for each in found):
        return newest.epoch + 1
    if epoch is not None and epoch >= newest.epoch:
        return epoch
    raise FencedError(
        f"a later run of {processor!r} has taken over {log.path} (epoch {newest.epoch}); this one"
        " must stop, and nothing that it does now is written"
    )


def encode_meta(step: Step, epoch: int, run: str, *, forget: bool = False) -> bytes:
    inputs = [(each.start, each.end) for each in step.offsets]
    meta = _Meta(
        _FORMAT, step.processor, step.hash or None, step.number, inputs, epoch, run, forget
    )
    return msgspec.msgpack.encode(meta)


def _decode(commit: Commit) -> StepCommit | None:
    """None for the commit of someone else, whose metadata is their own affair."""
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
        meta.forget,
    )
