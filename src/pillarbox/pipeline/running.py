"""Ensures that one process at a time runs a pipeline.

In a directory, the process holds a file lock, and a second run is refused. On a remote store, a
second run claims the pipeline, and the first can no longer write.
Other processes may execute batches for a run, as those of Spark Connect do. They start no batch
when the run is stopping or its process is gone, and a new run waits for the batches that have
started.
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
#: `is_running` holds the lock for a moment, so wait this long before giving up.
_LOCK_SECONDS = 0.1
_BATCH_SECONDS = 60.0
_POLL_SECONDS = 0.005
_ENDED = "the run of this batch has ended or is stopping"


class StoppingError(Exception):
    """A batch started while the pipeline was stopping; the next run repeats it."""


class RunLock(Closing):
    """The lock held by the process that runs or resets a pipeline in a directory."""

    def __init__(self, paths: Paths, *, shared: bool = False) -> None:
        self._paths, self._shared = paths, shared
        #: The content of the lock file: the process id and a random part, unique to the run.
        self.token = f"{os.getpid()} {uuid.uuid4().hex}"
        self._closing = threading.Lock()
        make_directory(_DISK, paths.path)
        self._handle: int | None = _DISK.open(paths.running, write=True, create=True)
        try:
            if not _locked(self._handle, _LOCK_SECONDS):
                raise PipelineRunningError(paths.path, _pid(paths))
            _DISK.truncate(self._handle, 0)
            _DISK.pwrite(self._handle, [self.token.encode()], 0)
            _DISK.fdatasync(self._handle)  # for readers on other machines
            _wait_for_batches(paths)
        except BaseException:
            self.close()
            raise

    def claim(self) -> None:
        """Do nothing: in a directory, the lock suffices."""

    def backing(self) -> BackingLog:
        """Open the backing log of the pipeline."""
        return FileBackingLog(self._paths.backing, shared=self._shared)

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
    """The claim of the process that runs or resets a pipeline on a remote store."""

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

    def backing(self) -> BackingLog:
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
    kind = RunClaim if paths.on_remote_store else RunLock
    return kind(paths, shared=shared)


def _check_clock(location: str) -> None:
    """Raise a StorageError if the clocks differ so much that vacuum would be unsafe."""
    files, name = remote_files_at(location), f"clock-{uuid.uuid4().hex}"
    files.write(name, b"clock check", durable=False)
    try:
        ahead = time.time() - files.written_at(name)
    finally:
        files.remove(name)
    if abs(ahead) > CLOCKS_APART_SECONDS_MAX:
        raise StorageError(
            f"the clock of this machine is {abs(ahead):,.0f} seconds"
            f" {'ahead of' if ahead > 0 else 'behind'} that of {location}, so old files would be"
            " removed too early or too late. Set the clock of this machine"
        )


def is_running(paths: Paths) -> bool:
    """Return whether the pipeline is running. On a remote store, a killed run still counts."""
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
    """Allow a batch for the run with this token; raise StoppingError if the run has ended."""
    if paths.on_remote_store:
        if running_token(paths.backing) != token:
            raise StoppingError(_ENDED)
        yield
        return
    handle = _DISK.open(paths.working, write=True, create=True)
    try:
        _locked(handle, _BATCH_SECONDS, exclusive=False)
        # Lock first, then check: a run that starts now either waits for this batch or is seen.
        if _token_in_file(paths) != token or not is_running(paths):
            raise StoppingError(_ENDED)
        yield
    finally:
        _DISK.close(handle)


def _wait_for_batches(paths: Paths) -> None:
    """Wait for batches that a killed run has left running."""
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


def _token_in_file(paths: Paths) -> str:
    try:
        with open(paths.running, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _pid(paths: Paths) -> int | None:
    pid = _token_in_file(paths).partition(" ")[0]
    return int(pid) if pid else None
