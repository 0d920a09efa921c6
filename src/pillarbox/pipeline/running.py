"""Who runs a pipeline: one process at a time, which holds a lock on a file of its directory.

Batches that another process runs for it, as Spark Connect's does, look at that file before they
begin: none begins when the run is about to stop, or when its process is gone.
"""

from __future__ import annotations

import os
import threading
import time
import uuid

from pillarbox.closing import Closing
from pillarbox.log import RealDisk
from pillarbox.pipeline.errors import PipelineRunningError
from pillarbox.pipeline.places import Places

_DISK = RealDisk()
#: Whoever asks `is_held` has the lock for a moment; that is no reason to give up.
_TRIES, _PAUSE_SECONDS = 3, 0.02


class Running(Closing):
    """To hold this is to be the one that runs a pipeline, or resets it."""

    def __init__(self, places: Places) -> None:
        _DISK.make_directory(places.path)
        self._lock = threading.Lock()
        self._handle: int | None = _DISK.open(places.running, write=True, create=True)
        if not _locked(self._handle):
            self.close()
            raise PipelineRunningError(places.path, _pid(places))
        #: What stands in the file: the process, and something that no other run has.
        self.token = f"{os.getpid()} {uuid.uuid4().hex}"
        _DISK.truncate(self._handle, 0)
        _DISK.pwrite(self._handle, [self.token.encode()], 0)

    def begin_no_more(self) -> None:
        """From now on no batch `may_begin`."""
        with self._lock:
            if self._handle is not None:
                _DISK.truncate(self._handle, 0)

    def close(self) -> None:
        with self._lock:
            if self._handle is not None:
                _DISK.close(self._handle)
                self._handle = None


def _locked(handle: int) -> bool:
    for _ in range(_TRIES):
        if _DISK.lock(handle, exclusive=True):
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def is_held(places: Places) -> bool:
    """Whether a process runs the pipeline."""
    try:
        handle = _DISK.open(places.running)
    except FileNotFoundError:
        return False
    try:
        return not _DISK.lock(handle, exclusive=False)
    finally:
        _DISK.close(handle)


def may_begin(places: Places, token: str) -> bool:
    """Whether a batch of this run may begin: it is still there, and not about to stop."""
    return _said(places) == token and is_held(places)


def _said(places: Places) -> str:
    try:
        with open(places.running, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _pid(places: Places) -> int | None:
    pid = _said(places).partition(" ")[0]
    return int(pid) if pid else None
