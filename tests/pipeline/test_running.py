"""R82: one process at a time runs a pipeline; batches elsewhere know whether it still does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pillarbox.pipeline import PipelineError, running
from pillarbox.pipeline.errors import PipelineRunningError
from pillarbox.pipeline.places import Places
from pillarbox.pipeline.running import Running, StoppingError, batch_of, is_held


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "shop"))


def may_begin(places: Places, token: str) -> bool:
    try:
        with batch_of(places, token):
            return True
    except StoppingError:
        return False


def test_R82_one_process_at_a_time_runs_a_pipeline(places: Places) -> None:
    with Running(places), pytest.raises(PipelineRunningError, match=f"process {os.getpid()}; stop"):
        Running(places)
    Running(places).close()
    assert issubclass(PipelineRunningError, PipelineError)


def test_R82_a_batch_begins_while_its_run_goes_on(places: Places) -> None:
    assert not is_held(places)
    with Running(places) as run:
        assert is_held(places)
        assert may_begin(places, run.token)
        assert not may_begin(places, "1 another run"), "a batch of a run before this one"
        run.begin_no_more()
        assert is_held(places)
        assert not may_begin(places, run.token)
    run.begin_no_more()
    run.close()
    assert not is_held(places)


def test_R82_no_batch_begins_when_the_run_was_killed(places: Places) -> None:
    code = (
        "import sys, time; from pillarbox.pipeline.places import Places;"
        "from pillarbox.pipeline.running import Running;"
        "print(Running(Places(sys.argv[1])).token, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, places.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        token = process.stdout.readline().strip()
        assert may_begin(places, token)
        process.send_signal(signal.SIGKILL)
    assert not may_begin(places, token)
    with Running(places) as run:
        assert run.token != token
        assert not may_begin(places, token)


def test_R82_who_asks_is_not_in_the_way_of_who_starts(places: Places) -> None:
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            is_held(places)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(300):
            Running(places).close()
    finally:
        over.set()
        thread.join()


BATCH = """
import sys
from pillarbox.pipeline.places import Places
from pillarbox.pipeline.running import batch_of
with batch_of(Places(sys.argv[1]), sys.argv[2]):
    print("begun", flush=True)
    sys.stdin.read()
    print("ended", flush=True)
"""


def test_R82_a_new_run_waits_for_a_batch_of_one_that_was_killed(places: Places) -> None:
    killed = Running(places)
    command = [sys.executable, "-c", BATCH, places.path, killed.token]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as batch:  # type: ignore[call-overload]
        assert batch.stdout.readline() == "begun\n"
        killed.close()
        order: list[str] = []

        def start() -> None:
            with Running(places):
                order.append("running")

        thread = threading.Thread(target=start)
        thread.start()
        while not is_held(places):  # it has the lock already
            pass
        assert not may_begin(places, killed.token), "no other batch of it begins"
        thread.join(0.2)
        assert order == []
        order.append("the batch ends")
        batch.stdin.close()
        thread.join()
    assert order == ["the batch ends", "running"]


def test_R82_a_batch_that_does_not_end_is_told_of(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_BATCH_SECONDS", 0.05)
    killed = Running(places)
    with batch_of(places, killed.token):
        killed.close()
        with pytest.raises(PipelineError, match="still at work on its Spark Connect server"):
            Running(places)
        assert not is_held(places)
    Running(places).close()
