"""The backing log of a pipeline in a directory: a map a record, in JSON that a person can read.

What a restart does follows from the last two maps and from the outputs themselves; see
`inspection`. On a remote store `remote_backing` takes the place of the log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence

import msgspec

from pillarbox.log import Log, LogError, LogLockedError
from pillarbox.log.readable_log import ReadableLog
from pillarbox.pipeline.errors import PipelineError, PipelineRunningError
from pillarbox.pipeline.maps import LastMaps, Map, ProcessorState
from pillarbox.pipeline.remote_backing import RemoteBackingLog, read_entries
from pillarbox.spark.commits import open_to_commit
from pillarbox.spark.location import is_remote_store

_SEGMENT_BYTES = 1 << 20
_MAPS_KEPT = 20_000  # about so many; then the newest are said again and old files dropped
_decode = msgspec.json.Decoder(Map).decode


class FileBackingLog(LastMaps):
    """The backing log of a running pipeline.

    One process keeps it open; or several share it, each of which opens it to write a map.
    """

    def __init__(self, path: str, *, shared: bool = False) -> None:
        super().__init__()
        self._path = path
        self._lock = threading.Lock()
        self._known = 0  # maps before this index were taken
        self._restated = 0
        self._kept: Log | None = None
        log = self._open()
        if shared:
            log.close()
        else:
            self._kept = log

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
        self.take(maps)
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
            self.take(_maps(log, max(self._known, log.first_index)))
        except BaseException:
            log.close()
            raise
        self._known = log.end_index
        self._restated = max(self._restated, log.first_index)
        return log

    def _forget_old(self, log: Log) -> None:
        """Say the newest maps again, so that what lies before them may go."""
        self._restated = log.append_many([msgspec.json.encode(map_) for map_ in self.newest()])
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
    last = LastMaps()
    last.take(read_maps(path))
    return last.known()


def _maps(log: ReadableLog, start: int | None = None) -> Iterator[Map]:
    for frame in log.frames(start):
        for record in frame.records:
            yield _decode(record)
