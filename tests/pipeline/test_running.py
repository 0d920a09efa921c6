"""R82: one process at a time runs a pipeline; batches elsewhere know whether it still does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pillarbox.log import Log
from pillarbox.pipeline import LogRef, PipelineError, running
from pillarbox.pipeline.batch import BatchJob, BatchRunner
from pillarbox.pipeline.errors import PipelineRunningError
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.running import RunLock, StoppingError, batch_for_run, is_running
from pillarbox.spark import Step
from pillarbox.spark.commits import pin_name


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "shop"))


def may_begin(paths: Paths, token: str) -> bool:
    try:
        with batch_for_run(paths, token):
            return True
    except StoppingError:
        return False


def test_R82_one_process_at_a_time_runs_a_pipeline(paths: Paths) -> None:
    with RunLock(paths), pytest.raises(PipelineRunningError, match=f"process {os.getpid()}; stop"):
        RunLock(paths)
    RunLock(paths).close()
    assert issubclass(PipelineRunningError, PipelineError)


def test_R82_a_batch_begins_while_its_run_goes_on(paths: Paths) -> None:
    assert not is_running(paths)
    with RunLock(paths) as run:
        assert is_running(paths)
        assert may_begin(paths, run.token)
        assert not may_begin(paths, "1 another run"), "a batch of a run before this one"
        run.stop_batches()
        assert is_running(paths)
        assert not may_begin(paths, run.token)
    run.stop_batches()
    run.close()
    assert not is_running(paths)


def test_R82_no_batch_begins_when_the_run_was_killed(paths: Paths) -> None:
    code = (
        "import sys, time; from pillarbox.pipeline.paths import Paths;"
        "from pillarbox.pipeline.running import RunLock;"
        "print(RunLock(Paths(sys.argv[1])).token, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, paths.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        token = process.stdout.readline().strip()
        assert may_begin(paths, token)
        process.send_signal(signal.SIGKILL)
    assert not may_begin(paths, token)
    with RunLock(paths) as run:
        assert run.token != token
        assert not may_begin(paths, token)


def test_R82_who_asks_is_not_in_the_way_of_who_starts(paths: Paths) -> None:
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            is_running(paths)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(300):
            RunLock(paths).close()
    finally:
        over.set()
        thread.join()


BATCH = """
import sys
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.running import batch_for_run
with batch_for_run(Paths(sys.argv[1]), sys.argv[2]):
    print("begun", flush=True)
    sys.stdin.read()
    print("ended", flush=True)
"""


def test_R82_a_new_run_waits_for_a_batch_of_one_that_was_killed(paths: Paths) -> None:
    killed = RunLock(paths)
    command = [sys.executable, "-c", BATCH, paths.path, killed.token]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as batch:  # type: ignore[call-overload]
        assert batch.stdout.readline() == "begun\n"
        killed.close()
        order: list[str] = []

        def start() -> None:
            with RunLock(paths):
                order.append("running")

        thread = threading.Thread(target=start)
        thread.start()
        while not is_running(paths):  # it has the lock already
            pass
        assert not may_begin(paths, killed.token), "no other batch of it begins"
        thread.join(0.2)
        assert order == []
        order.append("the batch ends")
        batch.stdin.close()
        thread.join()
    assert order == ["the batch ends", "running"]


def test_R82_a_batch_that_does_not_end_is_told_of(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_BATCH_SECONDS", 0.05)
    killed = RunLock(paths)
    with batch_for_run(paths, killed.token):
        killed.close()
        with pytest.raises(PipelineError, match="still running on its Spark Connect server"):
            RunLock(paths)
        assert not is_running(paths)
    RunLock(paths).close()


def test_R73_a_pipeline_of_any_name_pins_what_it_reads(tmp_path: Path) -> None:
    orders = f"{tmp_path}/orders"
    with Log.open(orders) as log:
        log.append_many([b"tea"] * 5)
    unused: Any = None
    job = BatchJob(
        pipeline="my shop/2",
        processor="s",
        strategy="exactly-once",
        deliver=None,
        inputs=(LogRef("orders", f"file:{orders}", bytes),),
        outputs={},
        errors="",
        sources=["orders"],
        begins={},
        generation=0,
        epochs={},
        checkpoint="",
        produce=None,
    )
    BatchRunner(job, unused, unused)._pin(Step("s", 1, "", {"orders": (3, 5)}))
    with Log.open(orders, readonly=True) as reader:
        (pin,) = reader.pins()
        assert pin.startswith("pin:pipeline.my_shop_2.s-")
        assert reader.pins()[pin] == 3


@pytest.mark.parametrize(
    ("name", "other"), [("my shop", "my_shop"), ("my shop", "my/shop"), ("x" * 128, "x" * 129)]
)
def test_R73_pipelines_of_similar_names_have_pins_of_their_own(name: str, other: str) -> None:
    assert pin_name("pipeline", name, "s") != pin_name("pipeline", other, "s")
    assert len(pin_name("pipeline", name, "s")) <= 128
