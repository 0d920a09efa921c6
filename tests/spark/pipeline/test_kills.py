"""kill -9 of real drivers: nothing is lost, nothing is doubled, and hashes stay what they were."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pipeline.driver import ROWS_PER_STEP, TOPOLOGIES, words
from tests.spark.pipeline.support import finish, hashes, maps, read_json, write
from tests.spark.s3 import test_kills as on_s3
from tests.spark.s3.driver import MASTER

KILLED = -signal.SIGKILL


def start(topology: str, path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.pipeline.driver", topology, str(path)]
    return subprocess.Popen([*command, *arguments], stderr=subprocess.DEVNULL)


def run(topology: str, path: Path, *arguments: str, timeout: float = 300) -> int:
    """Its exit code; nothing is left running if the time is up."""
    with start(topology, path, *arguments) as process:
        try:
            return process.wait(timeout)
        finally:
            process.kill()


@pytest.mark.timeout(600)  # three drivers, each with a Java of its own
def test_R83_a_kill_after_each_act_of_a_fan_out_and_its_sink(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "words", words(40))
    for act, number in (("recovery", "1"), ("attempt", "2"), ("output", "2")):
        assert run("fan_out", tmp_path, act, number) == KILLED
    pipeline = TOPOLOGIES["fan_out"](tmp_path)
    finish(pipeline, spark, max_rows=ROWS_PER_STEP)
    for name, parity in (("left", 0), ("right", 1)):
        numbers = [each["number"] for each in read_json(pipeline.directory(name))]
        assert Counter(numbers) == Counter(range(parity, 40, 2))
    assert all(len(each) == 1 for each in hashes(maps(pipeline)).values())
    archived = spark.read.parquet(str(tmp_path / "archive")).collect()
    assert Counter(row.number for row in archived) == Counter(range(0, 40, 2))
    handed_over = set((tmp_path / "hashes").read_text().split())
    assert handed_over == {row["hash"] for row in archived}


@pytest.mark.soak
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_R83_soak_kills_at_random_moments(topology: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    count = 0
    for _ in range(20):
        write(tmp_path / "words", words(count + 60)[count:])
        write(tmp_path / "others", words(count + 60)[count:])
        count += 60
        process = start(topology, tmp_path)
        try:
            process.wait(chance.uniform(4, 20))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert run(topology, tmp_path, timeout=600) == 0
    pipeline = TOPOLOGIES[topology](tmp_path)
    outputs = ("left", "right") if topology == "fan_out" else ("out",)
    found = [each["number"] for name in outputs for each in read_json(pipeline.directory(name))]
    assert Counter(found) == Counter(range(count))
    assert all(len(each) == 1 for each in hashes(maps(pipeline)).values())


@pytest.mark.soak
def test_R81_soak_the_same_pipeline_runs_on_a_cluster_of_processes(tmp_path: Path) -> None:
    write(tmp_path / "words", words(200))
    code = (
        "import sys; from pathlib import Path; from tests.spark.pipeline.driver import fan_out;"
        "fan_out(Path(sys.argv[1])).run(master='local-cluster[2,1,1024]', available_now=True)"
        ".wait()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=600)
    pipeline = TOPOLOGIES["fan_out"](tmp_path)
    found = [
        each["number"] for name in ("left", "right") for each in read_json(pipeline.directory(name))
    ]
    assert Counter(found) == Counter(range(200))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("victim", ["executor", "worker"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_R83_soak_executors_and_workers_are_killed_at_random(
    topology: str, victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as on S3, in a directory."""
    marks = (on_s3.EXECUTOR,) if victim == "executor" else on_s3.WORKERS
    if victim == "executor":
        monkeypatch.setenv(MASTER, "local-cluster[2,1,1024]")
    on_s3.kill_below_a_driver(None, topology, str(tmp_path / "p"), *marks)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_R83_soak_drivers_are_killed_after_each_act(topology: str, tmp_path: Path) -> None:
    place = str(tmp_path / "p")
    pipeline = on_s3.TOPOLOGIES[topology](place, "exactly-once")
    on_s3.send(pipeline, 40)
    for number, act in enumerate(on_s3.ACTS):
        code = on_s3.run(None, topology, place, "exactly-once", act, str(1 + number % 2))
        assert code == KILLED
    assert on_s3.run(None, topology, place, "exactly-once") == 0
    assert on_s3.found(pipeline) == Counter(range(40))
    tried = hashes(maps(pipeline))
    assert tried
    assert all(len(each) == 1 for each in tried.values())
