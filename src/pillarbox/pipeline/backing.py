"""The backing log of a pipeline in a directory. Each record is a map in readable JSON.

The last two maps and the outputs determine what a restart does; see `inspection`. On a remote
store `remote_backing` is used instead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence

import msgspec

from pillarbox.log import Log, LogLockedError
from pillarbox.log.readable_log import ReadableLog
from pillarbox.mailbox.data_directory import is_log
from pillarbox.pipeline.errors import PipelineError, PipelineRunningError
from pillarbox.pipeline.maps import LastMaps, Map, ProcessorState
from pillarbox.pipeline.remote_backing import RemoteBackingLog, read_entries
from pillarbox.spark.commits import open_to_commit
from pillarbox.spark.location import is_remote_store

_SEGMENT_BYTES = 1 << 20
_MAPS_KEPT = 20_000  # approximately; after that, rewrite the newest maps and drop old segments
_decode = msgspec.json.Decoder(Map).decode


class FileBackingLog(LastMaps):
    """The backing log of a running pipeline.

    Either one process keeps it open, or several share it and each opens it only to write.
    """

    def __init__(self, path: str, *, shared: bool = False) -> None:
        super().__init__()
        self._path = path
        self._lock = threading.Lock()
        self._applied_to = 0  # maps before this index are in the states
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
            self._drop_old(log)
        self._applied_to = log.end_index

    def _open(self) -> Log:
        """Open the log and apply the maps written since this process last had it open."""
        try:
            log = open_to_commit(self._path, segment_bytes=_SEGMENT_BYTES)
        except LogLockedError as error:
            raise PipelineRunningError(os.path.dirname(self._path), error.pid) from error
        try:
            self.take(_maps(log, max(self._applied_to, log.first_index)))
        except BaseException:
            log.close()
            raise
        self._applied_to = log.end_index
        self._restated = max(self._restated, log.first_index)
        return log

    def _drop_old(self, log: Log) -> None:
        """Append the newest maps again, so that everything before them can be truncated."""
        self._restated = log.append_many([msgspec.json.encode(map_) for map_ in self.newest()])
        log.truncate_before(self._restated)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


BackingLog = FileBackingLog | RemoteBackingLog


def open_backing(path: str, token: str) -> BackingLog:
    """Open the backing log in a process that executes batches for a run."""
    if is_remote_store(path):
        return RemoteBackingLog(path, token, joined=True)
    return FileBackingLog(path, shared=True)


def read_maps(path: str) -> list[Map]:
    """Return all maps of a backing log, oldest first. Safe while a run is writing."""
    if is_remote_store(path):
        return read_entries(path)
    if not is_log(path):
        raise PipelineError(f"there is no pipeline in {os.path.dirname(path)}; run it first")
    with Log.open(path, readonly=True) as log:
        return list(_maps(log))


def read_states(path: str) -> dict[str, ProcessorState]:
    """Return the newest maps of every processor."""
    last = LastMaps()
    last.take(read_maps(path))
    return last.states()


def _maps(log: ReadableLog, start: int | None = None) -> Iterator[Map]:
    for frame in log.frames(start):
        for record in frame.records:
            yield _decode(record)
