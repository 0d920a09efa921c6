"""Commits steps to a log: deduplicates them by hash, and fences replaced runs.

Each commit has the processor, the step's hash and inputs, the run and its epoch, in the same frame
as the records. A step whose hash is in the log is done. A run whose epoch is older than that of
the newest commit has been replaced, and is refused. All checks hold the log's lock, so no other
driver can commit between a check and its commit.
"""

from __future__ import annotations

import hashlib
import re
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
    #: None for a commit of an earlier version that only claimed an epoch.
    hash: str | None
    batch_id: int
    inputs: tuple[Input, ...]
    epoch: int
    run: str
    first_index: int
    end_index: int
    time_ns: int


def step_commits(url: str, processor: str | None = None) -> Iterator[StepCommit]:
    """Yield the steps recorded in a log, newest first."""
    with Log.open(local_directory(url), readonly=True) as log:
        yield from commits_in(log, processor)


def last_commit(url: str, processor: str) -> StepCommit | None:
    """Return the newest step of a processor in a log; None if there is none."""
    return next((each for each in step_commits(url, processor) if each.hash is not None), None)


def commits_in(log: ReadableLog, processor: str | None) -> Iterator[StepCommit]:
    """Yield the steps of an open log, newest first."""
    for commit in log.commits():
        step = _decode(commit)
        if step is not None and processor in (None, step.processor):
            yield step


def open_to_commit(directory: str, *, segment_bytes: int = SEGMENT_BYTES) -> Log:
    """Open a log for writing; wait for the lock if another writer holds it."""
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
    """Append the records and the step's hash in one frame, unless the log has the hash."""
    with open_to_commit(directory) as log:
        first = log.next_index
        # Tasks report the run. For a batch without tasks, it is that of the batch before.
        run = run or next((each.run for each in commits_in(log, step.processor)), "")
        epoch = admit(log, step, run, check=strategy == EXACTLY_ONCE)
        if epoch is not None:
            log.append_committed(records, encode_meta(step, epoch, run))
            _pin_newest(log, step.processor, max(first - 1, 0))


def _pin_newest(log: Log, processor: str, index: int) -> None:
    """Pin the newest commit, so that retention never drops the record of the last step."""
    pin = pin_name("processor", processor)
    pinned = log.pins().get(f"pin:{pin}")
    if pinned is None or log.segment_base(pinned) != log.segment_base(index):
        log.pin(pin, index)
    if pinned is None and (pin_of_0_2 := _safe(f"processor.{processor}")) != pin:
        log.unpin(pin_of_0_2)  # it would hold back retention for ever


def pin_name(*names: str) -> str:
    """Return a name for a pin, whatever characters the names contain: others get another one."""
    name = ".".join(names)
    safe = _safe(name)
    if safe == name:
        return name
    return f"{safe[:95]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:128]


def admit(log: Log, step: Step, run: str, *, check: bool = True) -> int | None:
    """Return the epoch to commit the step with, or None if the step is done.

    Raises FencedError or DivergedError if the step may not be committed. Without `check`, a step
    is written each time it runs: at least once.
    """
    commits = list(_relevant_commits(log, step, run))
    epoch = _epoch(log, step.processor, commits, run)
    if not check:
        return epoch
    if any(each.hash == step.hash for each in commits):
        return None
    last = next((each for each in commits if each.hash is not None), None)
    if last is not None and step.number >= 0:
        _check_history(log, last, step)
    return epoch


def _check_history(log: Log, last: StepCommit, step: Step) -> None:
    """Raise unless the step starts where the last one ended, or comes after a gap."""
    ends = [each.end for each in last.inputs]
    if last.batch_id < step.number - 1:
        return
    if last.batch_id == step.number - 1 and ends == step.starts:
        return
    raise DivergedError(
        f"{step.processor!r} has committed batch {last.batch_id} to {log.path}, up to {ends}, but"
        f" its checkpoint is about to run batch {step.number} from {step.starts}: they do not"
        " belong together. Restore the checkpoint, or give this query a processor id of its own"
    )


def _relevant_commits(log: Log, step: Step, run: str) -> Iterator[StepCommit]:
    """Yield the commits needed to check a step, newest first."""
    for commit in commits_in(log, step.processor):
        yield commit
        follows = commit.batch_id == step.number - 1 and commit.run == run
        if commit.hash == step.hash or (follows and step.number >= 0):
            return


def _epoch(log: Log, processor: str, commits: list[StepCommit], run: str) -> int:
    newest = commits[0] if commits else None
    if newest is None:
        return 1
    if newest.run == run:
        return newest.epoch
    if not any(each.run == run for each in commits):
        return newest.epoch + 1
    raise FencedError(
        f"a later run of {processor!r} has taken over {log.path} (epoch {newest.epoch}); this run"
        " must stop and can write nothing more"
    )


def encode_meta(step: Step, epoch: int, run: str) -> bytes:
    inputs = [(each.start, each.end) for each in step.offsets]
    meta = _Meta(_FORMAT, step.processor, step.hash, step.number, inputs, epoch, run)
    return msgspec.msgpack.encode(meta)


def _decode(commit: Commit) -> StepCommit | None:
    """Return the step of a commit; None if the commit was not written by this module."""
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
