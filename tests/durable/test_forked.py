"""R31, R82: a forked child has no part in its parent's locks, and outlives it harmlessly."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox import DurableMailbox, MailboxStorageError
from pillarbox.log import Log, LogError, LogLockedError
from pillarbox.pipeline import running
from pillarbox.pipeline.errors import PipelineError, PipelineRunningError
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.running import RunLock


@contextlib.contextmanager
def orphan(what: str, path: Path, *flags: str) -> Iterator[int]:
    """A child whose parent opened `what`, forked it, and was killed; the parent's pid."""
    command = [sys.executable, "-m", "tests.durable.forking_process", what, str(path), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            os.kill(child, 0)  # it lives
            yield parent.pid
        finally:
            os.kill(child, signal.SIGKILL)


def test_R31_a_store_opens_at_once_when_only_a_child_of_its_owner_is_left(tmp_path: Path) -> None:
    with orphan("store", tmp_path), DurableMailbox("box", str, path=tmp_path) as box:
        assert [message.body for message in box.receive()] == ["sent before the fork"]


def test_R31_control_a_child_that_kept_the_lock_keeps_the_store(tmp_path: Path) -> None:
    with (
        orphan("store", tmp_path, "--keep") as pid,
        pytest.raises(MailboxStorageError, match=f"process {pid} itself has ended"),
    ):
        DurableMailbox("box", str, path=tmp_path)


def test_R31_a_log_opens_at_once_when_only_a_child_of_its_writer_is_left(tmp_path: Path) -> None:
    with orphan("log", tmp_path), Log.open(tmp_path) as log:
        assert log.get(0) == b"written before the fork"


def test_R31_control_a_child_that_kept_the_lock_keeps_the_log(tmp_path: Path) -> None:
    with orphan("log", tmp_path, "--keep"), pytest.raises(LogLockedError, match="has ended"):
        Log.open(tmp_path)


@pytest.mark.parametrize("what", ["run", "batch"])
def test_R82_a_pipeline_runs_again_when_only_a_child_of_its_runner_is_left(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_BATCH_SECONDS", 0.0)
    with orphan(what, tmp_path):
        RunLock(Paths(str(tmp_path))).close()


def test_R82_control_a_child_that_kept_the_locks_keeps_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_BATCH_SECONDS", 0.0)
    with (
        orphan("batch", tmp_path, "--keep"),
        pytest.raises(PipelineRunningError, match="has ended"),
    ):
        RunLock(Paths(str(tmp_path)))
    assert issubclass(PipelineRunningError, PipelineError)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_R31_a_forked_child_can_neither_write_nor_close_a_log_of_its_parent(
    tmp_path: Path,
) -> None:
    with Log.open(tmp_path) as log:
        log.append(b"first")
        log._writer.lock.acquire()  # as another thread may have it
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # to hang is to fail
            with contextlib.suppress(LogError):
                log.append(b"by the child")
                os._exit(1)
            log.close()
            os._exit(0)
        log._writer.lock.release()
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(LogLockedError):
            Log.open(tmp_path)  # closing it in the child took nothing from the parent
        assert log.append(b"second") == 1
    with Log.open(tmp_path, check="all") as log:
        assert log.recovery.clean
        assert [log.get(0), log.get(1)] == [b"first", b"second"]


@pytest.mark.parametrize("inheritable", [False, True])
def test_R31_a_program_that_the_owner_starts_has_no_part_in_its_locks(
    tmp_path: Path, *, inheritable: bool
) -> None:
    """Control: with a descriptor that programs inherit, the lock outlives its owner."""
    log = Log.open(tmp_path)
    os.set_inheritable(log._lock_handle, inheritable)
    command = [sys.executable, "-c", "print(flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, close_fds=False) as program:
        assert program.stdout is not None
        program.stdout.readline()  # it has begun
        log.close()
        try:
            Log.open(tmp_path).close()
            assert not inheritable
        except LogLockedError:
            assert inheritable
        finally:
            program.kill()
