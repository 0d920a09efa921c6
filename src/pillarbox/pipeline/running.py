"""Who runs a pipeline: one process at a time.

In a directory it holds a lock on a file, and others are refused. On a remote store the later one
claims the pipeline, and the earlier one can't write any more.
Other processes may take batches for it, as Spark Connect's do. None begins when the run is about
to stop, or when its process is gone; and a new run waits for the end of those that had begun.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Iterator

from pillarbox.closing import Closing
from pillarbox.log import RealDisk
from pillarbox.log.disk import keep_from_children, make_directory
from pillarbox.pipeline.backing import BackingLog, FileBackingLog
from pillarbox.pipeline.errors import PipelineError, PipelineRunningError
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.remote_backing import RemoteBackingLog, new_run, running_token
from pillarbox.spark.errors import StorageError
from pillarbox.spark.files import remote_files_at
from pillarbox.spark.remote_store import CLOCKS_APART_SECONDS_MAX

_DISK = RealDisk()
#: Whoever asks `is_running` has the lock for a moment; that is no reason to give up.
_ASKING_SECONDS = 0.1
_BATCH_SECONDS = 60.0
_POLL_SECONDS = 0.005
_OVER = "the run that this batch is for has ended, or is about to"


class StoppingError(Exception):
    """A batch began when the pipeline was about to stop; it is run the next time."""


class RunLock(Closing):
    """The lock of the process that runs a pipeline in a directory, or resets it."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        #: What stands in the file: the process, and something that no other run has.
        self.token = f"{os.getpid()} {uuid.uuid4().hex}"
        self._closing = threading.Lock()
        make_directory(_DISK, paths.path)
        self._handle: int | None = _DISK.open(paths.running, write=True, create=True)
        try:
            if not _locked(self._handle, _ASKING_SECONDS):
                raise PipelineRunningError(paths.path, _pid(paths))
            _DISK.truncate(self._handle, 0)
            _DISK.pwrite(self._handle, [self.token.encode()], 0)
            _DISK.fdatasync(self._handle)  # for those on other machines
            _wait_for_batches(paths)
        except BaseException:
            self.close()
            raise

    def claim(self) -> None:
        """Begin to write; in a directory, the lock is all that is needed."""

    def backing(self, *, shared: bool = False) -> BackingLog:
        """The backing log of the pipeline."""
        return FileBackingLog(self._paths.backing, shared=shared)

    def stop_batches(self) -> None:
        """Start no more batches; running ones finish."""
        with self._closing:
            if self._handle is not None:
                _DISK.truncate(self._handle, 0)
                _DISK.fdatasync(self._handle)

    def close(self) -> None:
        with self._closing:
            if self._handle is not None:
                _DISK.close(self._handle)
                self._handle = None


class RunClaim(Closing):
    """The same on a remote store."""

    def __init__(self, paths: Paths, *, shared: bool = False) -> None:
        self.token = new_run()
        self._path = paths.path
        self._backing = RemoteBackingLog(paths.backing, self.token, joined=shared)
        self._lock = threading.Lock()
        self._claimed = False

    def claim(self) -> None:
        _check_clock(self._path)
        self._claimed = True
        self._backing.claim()

    def backing(self, *, shared: bool = False) -> BackingLog:
        return self._backing

    def stop_batches(self) -> None:
        with self._lock:
            if self._claimed:
                self._claimed = False
                self._backing.release()

    def close(self) -> None:
        self.stop_batches()


def acquire_run(paths: Paths, *, shared: bool = False) -> RunLock | RunClaim:
    """Acquire the right to run a pipeline; `shared` if other processes run its batches."""
    return RunClaim(paths, shared=shared) if paths.on_remote_store else RunLock(paths)


def _check_clock(location: str) -> None:
    """Raise a StorageError if files would be removed too early or too late."""
    files, name = remote_files_at(location), f"clock-{uuid.uuid4().hex}"
    files.write(name, b"what time is it", durable=False)
    try:
        ahead = time.time() - files.written_at(name)
    finally:
        files.remove(name)
    if abs(ahead) > CLOCKS_APART_SECONDS_MAX:
        raise StorageError(
            f"the clock of this machine is {abs(ahead):,.0f} seconds"
            f" {'ahead of' if ahead > 0 else 'behind'} that of {location}: files would be removed"
            " too early or too late. Set the clock of this machine"
        )


def is_running(paths: Paths) -> bool:
    """Whether a process runs the pipeline; on a remote store, as far as its entries tell."""
    if paths.on_remote_store:
        return running_token(paths.backing) is not None
    try:
        handle = _DISK.open(paths.running)
    except FileNotFoundError:
        return False
    try:
        return not _DISK.lock(handle, exclusive=False)
    finally:
        _DISK.close(handle)


@contextlib.contextmanager
def batch_for_run(paths: Paths, token: str) -> Iterator[None]:
    """Run a batch for the run with this token; StoppingError if that run has ended."""
    if paths.on_remote_store:
        if running_token(paths.backing) != token:
            raise StoppingError(_OVER)
        yield
        return
    handle = _DISK.open(paths.working, write=True, create=True)
    try:
        _locked(handle, _BATCH_SECONDS, exclusive=False)
        # In this order: a run that begins now either waits for this batch or is seen by it.
        if _said(paths) != token or not is_running(paths):
            raise StoppingError(_OVER)
        yield
    finally:
        _DISK.close(handle)


def _wait_for_batches(paths: Paths) -> None:
    """Wait for batches that a killed run has left behind."""
    handle = _DISK.open(paths.working, write=True, create=True)
    try:
        if not _locked(handle, _BATCH_SECONDS):
            raise PipelineError(
                f"a batch of an earlier run of the pipeline in {paths.path} is still running on"
                " its Spark Connect server; try again when it has ended, or stop the server"
            )
    finally:
        _DISK.close(handle)


def _locked(handle: int, seconds: float, *, exclusive: bool = True) -> bool:
    deadline = time.monotonic() + seconds
    keep_from_children(handle)
    while not _DISK.lock(handle, exclusive=exclusive):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _said(paths: Paths) -> str:
    try:
        with open(paths.running, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _pid(paths: Paths) -> int | None:
    pid = _said(paths).partition(" ")[0]
    return int(pid) if pid else None
