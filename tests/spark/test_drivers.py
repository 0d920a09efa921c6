"""R83: whole drivers and executors are killed at any moment; nothing is lost, nothing doubled."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pillarbox import spark as on_spark
from pillarbox.log import Log
from tests.spark import killing
from tests.spark.driver_process import OURS
from tests.spark.support import contents, fill, numbered, processes_below

ROOT = Path(__file__).parents[2]
OUTPUTS = 3.5  # as many records come out, all in all, for each one that goes in


class Driver:
    """A driver in a process group of its own."""

    def __init__(self, place: Path, rows: int, master: str = "local[2]", **trap: str) -> None:
        self.errors = place / "driver.log"
        command = [sys.executable, "-m", "tests.spark.driver_process"]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, str(place), master, str(rows)],
                cwd=ROOT,
                env=os.environ | trap | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def until(self, growth: int, looks: int) -> bool:
        """Wait until the outputs have grown by so much, and a little longer; False if it ended."""
        assert self.process.stdout is not None
        first: int | None = None
        for line in self.process.stdout:
            if not line.startswith("{"):
                return False
            total = sum(json.loads(line).values())
            first = total if first is None else first
            if total - first >= growth:
                looks -= 1
            if looks < 0:
                return True
        return False

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def finish(self) -> bool:
        """Wait for the end. False if Spark has given up for reasons of its own, as on a busy
        machine it does when a worker takes long to start; none of ours is among them."""
        self.process.communicate()
        said = self.errors.read_text()
        assert not OURS.search(said), said[-4000:]
        return self.process.returncode == 0


def prepare(place: Path, rows: int) -> None:
    fill(place / "in", numbered(0, rows))
    fill(place / "in2", numbered(0, rows))
    fill(place / "mid", [])  # a stream can't follow a log that nobody has made yet


def check(place: Path, rows: int) -> None:
    """Every output is exactly what its inputs make of it."""
    all_rows = numbered(0, rows)
    assert contents(place / "mid") == all_rows
    assert contents(place / "out") == all_rows
    assert Counter(contents(place / "joined")) == Counter(each + each for each in all_rows)
    assert contents(place / "even") == all_rows[::2]
    processors = {"mid": "first", "out": "second", "joined": "join", "even": "even"}
    for name, processor in processors.items():
        commits = list(on_spark.step_commits(str(place / name), processor))
        batches = [each.batch_id for each in reversed(commits)]
        assert batches == list(range(len(batches))), "a step was done twice, or left out"
        kept = [
            each
            for each in commits
            if (place / "checkpoints" / processor / "offsets" / str(each.batch_id)).exists()
        ]
        for each in kept[:5]:
            step = on_spark.read_step(
                str(place / "checkpoints" / processor), each.batch_id, processor
            )
            assert each.hash == step.hash, "the hash of a step has changed"
        with Log.open(place / name, check="all"):
            pass


def kill_drivers(place: Path, rows: int, kills: int, seed: int) -> None:
    choice = random.Random(seed)
    prepare(place, rows)
    share = int(OUTPUTS * rows) // (kills + 1)
    for _ in range(kills):
        driver = Driver(place, rows)
        driver.until(choice.randrange(share), choice.randrange(20))
        driver.kill()
    run_to_the_end(place, rows)
    check(place, rows)


def run_to_the_end(place: Path, rows: int, master: str = "local[2]", **trap: str) -> None:
    assert any(Driver(place, rows, master, **trap).finish() for _ in range(5))


@pytest.mark.timeout(900)
def test_R83_drivers_killed_at_random_moments_three_topologies(tmp_path: Path) -> None:
    kill_drivers(tmp_path, 800, kills=2, seed=7)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("window", "victim"), [("after the task", "executor")])
def test_R83_an_executor_killed_in_a_local_cluster(
    tmp_path: Path, window: str, victim: str
) -> None:
    prepare(tmp_path, 400)
    marker = tmp_path / "marker"
    marker.touch()
    trap = {"killIn": window, "killMarker": str(marker), "killVictim": victim}
    run_to_the_end(tmp_path, 400, "local-cluster[2,1,1024]", **trap)
    assert not marker.exists(), "nobody was killed"
    check(tmp_path, 400)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_R83_drivers_killed_two_hundred_times(tmp_path: Path, seed: int) -> None:
    kill_drivers(tmp_path, 4000, kills=50, seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_R83_python_workers_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    """Those of tasks, those that plan a batch, those that commit it; queries start again."""
    choice, rows, kills = random.Random(seed), 20_000, 0
    prepare(tmp_path, rows)
    driver = Driver(tmp_path, rows)
    # Two hundred milliseconds are about a batch; the last kills meet a stream that is done.
    while driver.until(0, choice.randrange(2, 30)):
        workers = processes_below(driver.process.pid, b"pillarbox.spark.daemon")
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(choice.choice(workers), signal.SIGKILL)
                kills += 1
    if not driver.finish():
        run_to_the_end(tmp_path, rows)
    print("kills", kills)
    assert kills > 10
    check(tmp_path, rows)


@pytest.mark.soak
@pytest.mark.parametrize("window", killing.WINDOWS)
def test_R83_drivers_killed_in_a_window(tmp_path: Path, window: str) -> None:
    prepare(tmp_path, 1200)
    marker = tmp_path / "marker"
    marker.touch()
    trap = {"killIn": window, "killMarker": str(marker), "killVictim": "driver"}
    driver = Driver(tmp_path, 1200, **trap)
    driver.process.communicate()
    assert driver.process.returncode == -signal.SIGKILL
    run_to_the_end(tmp_path, 1200)
    check(tmp_path, 1200)
