"""R82: one process at a time runs a pipeline; batches elsewhere know whether it still does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.pipeline import PipelineError
from pillarbox.pipeline.errors import PipelineRunningError
from pillarbox.pipeline.places import Places
from pillarbox.pipeline.running import Running, is_held, may_begin


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "shop"))


def test_R82_one_process_at_a_time_runs_a_pipeline(places: Places) -> None:
    with Running(places), pytest.raises(PipelineRunningError, match=f"process {os.getpid()}; stop"):
        Running(places)
    Running(places).close()
    assert issubclass(PipelineRunningError, PipelineError)


def test_R82_a_batch_begins_while_its_run_goes_on(places: Places) -> None:
    assert not is_held(places)
    assert not may_begin(places, "1 a run")
    with Running(places) as running:
        assert is_held(places)
        assert may_begin(places, running.token)
        assert not may_begin(places, "1 another run"), "a batch of a run before this one"
        running.begin_no_more()
        assert is_held(places)
        assert not may_begin(places, running.token)
    running.begin_no_more()
    running.close()
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
    with Running(places) as running:
        assert running.token != token
        assert not may_begin(places, token)


def test_R82_who_asks_is_not_in_the_way_of_who_starts(places: Places) -> None:
    Running(places).close()
    for _ in range(200):
        with Running(places):
            assert is_held(places)
        assert not is_held(places)
