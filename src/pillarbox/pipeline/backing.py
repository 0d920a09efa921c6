"""The backing log of a pipeline in a directory: a map a record, in JSON that a person can read.

What a restart does follows from the last two maps and from the outputs themselves; see
`verdict`. On a remote store `remote_backing` takes the place of the log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from pillarbox.closing import Closing
from pillarbox.log import Log, LogError, LogLockedError
from pillarbox.log.readable_log import ReadableLog
from pillarbox.pipeline.errors import PipelineError, PipelineRunningError
from pillarbox.pipeline.maps import Map, ProcessorState, Range
from pillarbox.pipeline.remote_backing import RemoteBackingLog, read_entries
from pillarbox.spark.commits import open_to_commit
from pillarbox.spark.location import is_remote_store

_SEGMENT_BYTES = 1 << 20
_MAPS_KEPT = 20_000  # about so many; then the newest are said again and old files dropped
_decode = msgspec.json.Decoder(Map).decode


class FileBackingLog(Closing):
    """The backing log of a running pipeline.

    One process keeps it open; or several share it, each of which opens it to write a map.
    """

    def __init__(self, path: str, *, shared: bool = False) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._last: dict[str, ProcessorState] = {}
        self._known = 0  # maps before this index were taken
        self._restated = 0
        self._kept: Log | None = None
        log = self._open()
        if shared:
            log.close()
        else:
            self._kept = log

    def last(self, processor: str) -> ProcessorState:
        """Its newest maps; what other processes wrote is known from the next `write` on."""
        return self._last.setdefault(processor, ProcessorState())

    def known(self) -> dict[str, ProcessorState]:
        """The newest maps of every processor that has some."""
        return {name: last for name, last in self._last.items() if last.maps()}

    def write(self, *maps: Map) -> None:
        """Write maps, all or none; they are durable when this returns."""
        with self._lock:
            log = self._kept or self._open()
            try:
                self._append(log, maps)
            finally:
                if log is not self._kept:
                    log.close()

    def _append(self, log: Log, maps: Sequence[Map]) -> None:
        index = log.append_many([msgspec.json.encode(map_) for map_ in maps])
        for map_ in maps:
            self.last(map_.processor).take(map_)
        if index - self._restated >= _MAPS_KEPT:
            self._forget_old(log)
        self._known = log.end_index

    def _open(self) -> Log:
        """Open the log, and take what was written since it was open here."""
        try:
            log = open_to_commit(self._path, segment_bytes=_SEGMENT_BYTES)
        except LogLockedError as error:
            raise PipelineRunningError(os.path.dirname(self._path), error.pid) from error
        try:
            for map_ in _maps(log, max(self._known, log.first_index)):
                self.last(map_.processor).take(map_)
        except BaseException:
            log.close()
            raise
        self._known = log.end_index
        self._restated = max(self._restated, log.first_index)
        return log

    def _forget_old(self, log: Log) -> None:
        """Say the newest maps again, so that what lies before them may go."""
        newest = [map_ for last in self._last.values() for map_ in last.maps()]
        self._restated = log.append_many([msgspec.json.encode(map_) for map_ in newest])
        log.truncate_before(self._restated)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


BackingLog = FileBackingLog | RemoteBackingLog


def open_backing(path: str, token: str) -> BackingLog:
    """The backing log of a pipeline, for a process that takes batches for a run."""
    if is_remote_store(path):
        return RemoteBackingLog(path, token, joined=True)
    return FileBackingLog(path, shared=True)


def read_maps(path: str) -> list[Map]:
    """All maps of a backing log, oldest first, beside whoever writes it."""
    if is_remote_store(path):
        return read_entries(path)
    try:
        with Log.open(path, readonly=True) as log:
            return list(_maps(log))
    except LogError as error:
        raise PipelineError(f"there is no pipeline in {path}; run it first ({error})") from error


def read_states(path: str) -> dict[str, ProcessorState]:
    """The newest maps of every processor."""
    found: dict[str, ProcessorState] = {}
    for map_ in read_maps(path):
        found.setdefault(map_.processor, ProcessorState()).take(map_)
    return found


def _maps(log: ReadableLog, start: int | None = None) -> Iterator[Map]:
    for frame in log.frames(start):
        for record in frame.records:
            yield _decode(record)


Action = Literal["begin", "again", "finish", "go on"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a restart of one processor does, and why."""

    action: Action
    why: str


def verdict(last: ProcessorState, committed: Callable[[str, str], bool]) -> Verdict:
    """The start of a stream, as the algorithm has it.

    `committed(output, hash)` says whether an output holds the hash.
    """
    recovery, attempt = last.recovery, last.tried
    if recovery is None:
        return Verdict("begin", "it has not read anything yet")
    where = read_text(recovery.inputs)
    if attempt is None:
        return Verdict("again", f"step {recovery.step} had begun, nothing was attempted: {where}")
    there = [name for name in attempt.outputs if committed(name, attempt.hash)]
    missing = [name for name in attempt.outputs if name not in there]
    if not missing:
        return Verdict("go on", f"step {attempt.step} is in {', '.join(there)}")
    if there:
        return Verdict(
            "finish",
            f"step {attempt.step} is in {', '.join(there)} but not in {', '.join(missing)}: it is "
            f"run again for what is missing: {where}",
        )
    return Verdict("again", f"step {attempt.step} was attempted, but not committed: {where}")


def read_text(inputs: Mapping[str, Range]) -> str:
    """Which records a step reads, for people."""
    if not inputs:
        return "no input of ours"
    spans = [f"{name} {start or 0} up to {end}" for name, (start, end) in inputs.items()]
    return ", ".join(spans)
