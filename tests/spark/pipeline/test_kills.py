"""kill -9 of drivers that read row logs; `stores/test_kills.py` has those that read typed ones."""

from __future__ import annotations

import contextlib
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

KILLED = -signal.SIGKILL


def run(topology: str, path: Path, *act: str, timeout: float = 300) -> int | None:
    """The exit code of a driver; None if the time was up, and it was killed."""
    command = [sys.executable, "-m", "tests.spark.pipeline.driver", topology, f"{path}/p"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [*command, "exactly-once", *act],
            stderr=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
        return done.returncode
    return None


@pytest.mark.timeout(600)  # three drivers, each with a Java of its own
def test_R83_a_kill_after_each_act_of_a_fan_out_and_its_sink(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "words", words(40))
    for act, number in (("recovery", "1"), ("attempt", "2"), ("output", "2")):
        assert run("fan_out", tmp_path, act, number) == KILLED
    pipeline = TOPOLOGIES["fan_out"](f"{tmp_path}/p")
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
        run(topology, tmp_path, timeout=chance.uniform(4, 20))
    assert run(topology, tmp_path, timeout=600) == 0
    pipeline = TOPOLOGIES[topology](f"{tmp_path}/p")
    found = [each["number"] for each in read_json(pipeline.directory("out"))]
    assert Counter(found) == Counter(range(count))
    assert all(len(each) == 1 for each in hashes(maps(pipeline)).values())


@pytest.mark.soak
def test_R81_soak_the_same_pipeline_runs_on_a_cluster_of_processes(tmp_path: Path) -> None:
    write(tmp_path / "words", words(200))
    code = (
        "import sys; from tests.spark.pipeline.driver import fan_out;"
        "fan_out(sys.argv[1]).run(master='local-cluster[2,1,1024]', available_now=True).wait()"
    )
    subprocess.run([sys.executable, "-c", code, f"{tmp_path}/p"], check=True, timeout=600)
    pipeline = TOPOLOGIES["fan_out"](f"{tmp_path}/p")
    found = [
        each["number"] for name in ("left", "right") for each in read_json(pipeline.directory(name))
    ]
    assert Counter(found) == Counter(range(200))
