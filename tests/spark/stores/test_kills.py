"""R83, R131: kill -9 of drivers and what they start: nothing is lost or doubled, hashes stay."""

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
from typing import Any

import msgspec
import pytest

from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.remote_backing import running_token
from pillarbox.spark.table import TableLog, is_table
from pillarbox.spark.table_files import create_table
from tests.spark.pipeline.driver import MASTER, ROWS_PER_STEP, TOPOLOGIES, words
from tests.spark.pipeline.support import finish, hashes, maps
from tests.spark.stores.store import SLOW, Store, on
from tests.spark.support import processes_below

KILLED = -signal.SIGKILL
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("number", "long"), ("text", "string"))
    ],
}
ROUNDS = 8
ACTS = ("begun", "recovery", "attempt", "output")
#: Arguments that tell the processes of Spark apart. Java's own contain the daemon's name, too.
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
WORKERS = (b"pillarbox.spark.daemon", b"pyspark.sql.streaming.python_streaming_source_runner")


def start(store: Store, *arguments: str) -> subprocess.Popen[bytes]:
    store.need_jars()
    command = [sys.executable, "-m", "tests.spark.pipeline.driver", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ | store.variables)


def run(store: Store, *arguments: str, timeout: float = 400) -> int:
    """Its exit code; what a driver said that failed is printed."""
    with start(store, *arguments) as process:
        try:
            said = process.communicate(timeout=timeout)[1]
        finally:
            process.kill()
    if process.returncode > 0:
        print(said.decode()[-8000:])
    return process.returncode


def send(pipeline: Pipeline, count: int, *, start: int = 0) -> None:
    """Append words to the inputs, which the test creates if need be."""
    for log in pipeline.graph.logs:
        if log.name not in ("words", "others"):
            continue
        where = pipeline.directory(log.name)
        if not is_table(where):
            create_table(where, json.dumps(SCHEMA), columns=["number", "text"])
        found = [msgspec.to_builtins(each) for each in words(start + count)[start:]]
        TableLog(where).append(found, {})


def found(pipeline: Pipeline) -> Counter[Any]:
    return Counter(row["number"] for _, row in TableLog(pipeline.directory("out")).rows())


@on("s3", SLOW)
@pytest.mark.timeout(600)
def test_R83_a_killed_driver_goes_on_with_the_same_hashes(
    store_spark: Any, place: str, store: Store
) -> None:
    """Killed when its first step is committed, before Spark has taken note of it.

    The soak below kills the other topologies, too, after each act.
    """
    pipeline = TOPOLOGIES["aggregation"](place, "exactly-once")
    send(pipeline, 20)
    assert run(store, "aggregation", place, "exactly-once", "output", "1") == KILLED
    finish(pipeline, store_spark, max_rows=ROWS_PER_STEP)
    assert found(pipeline) == Counter(range(20))
    assert all(len(each) == 1 for each in hashes(maps(pipeline)).values())


@pytest.mark.soak
@pytest.mark.timeout(3600)
@on("directory", "s3", "hdfs")
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_R83_soak_drivers_are_killed_after_each_act(
    topology: str, place: str, store: Store
) -> None:
    pipeline = TOPOLOGIES[topology](place, "exactly-once")
    send(pipeline, 40)
    for number, act in enumerate(ACTS):
        assert run(store, topology, place, "exactly-once", act, str(1 + number % 2)) == KILLED
    assert run(store, topology, place, "exactly-once") == 0
    assert found(pipeline) == Counter(range(40))
    tried = hashes(maps(pipeline))
    assert tried
    assert all(len(each) == 1 for each in tried.values())


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_R83_soak_control_with_the_look_for_the_hash_off_a_step_is_doubled(
    place: str, store: Store
) -> None:
    pipeline = TOPOLOGIES["chain"](place, "at-least-once")
    send(pipeline, 20)
    assert run(store, "chain", place, "at-least-once", "output", "1") == KILLED
    assert run(store, "chain", place, "at-least-once") == 0
    assert found(pipeline) == Counter([*range(20), *range(10)])


@pytest.mark.soak
@pytest.mark.timeout(7200)
@on("s3")
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_R83_soak_drivers_are_killed_at_random(topology: str, place: str, store: Store) -> None:
    """Some seconds after they have claimed the pipeline, or committed one step, or two."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    pipeline = TOPOLOGIES[topology](place, "exactly-once")
    kills = 0
    for number in range(ROUNDS):
        send(pipeline, 30, start=30 * number)
        steps, seconds = number % 3, chance.uniform(0, 10)
        killed = kill_while_it_works(store, topology, place, steps, seconds)
        kills += killed
        did = "killed" if killed else "done"
        print("round", number, did, "after steps", steps, "rows", rows_written(pipeline))
    assert kills
    assert run(store, topology, place, "exactly-once", timeout=1200) == 0
    assert found(pipeline) == Counter(range(30 * ROUNDS))
    assert all(len(each) == 1 for each in hashes(maps(pipeline)).values())


def kill_while_it_works(
    store: Store, topology: str, place: str, steps: int, seconds: float
) -> bool:
    """Kill a driver so long after its claim and so many steps; False if it had done all before.

    Its start takes as long as it takes: seconds after that say nothing on a busy machine.
    """
    pipeline = TOPOLOGIES[topology](place, "exactly-once")
    claim, rows = running_token(pipeline.paths.backing), rows_written(pipeline)

    def waiting() -> bool:
        if running_token(pipeline.paths.backing) == claim:
            return True
        return rows_written(pipeline) < rows + steps * ROWS_PER_STEP

    with start(store, topology, place, "exactly-once") as driver:
        while driver.poll() is None and waiting():
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.communicate(timeout=0.2)
        try:
            driver.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            driver.kill()
        assert driver.wait() in (0, KILLED), driver.communicate()[1].decode()[-8000:]
    return driver.returncode == KILLED


def rows_written(pipeline: Pipeline) -> int:
    """In all logs that the pipeline writes."""
    names = {each.name for each in pipeline.graph.logs} - {"words", "others"}
    places = [pipeline.directory(name) for name in names]
    return sum(TableLog(each).end_index for each in places if is_table(each))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@on("directory", "s3")
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_R83_soak_executors_and_workers_are_killed_at_random(
    topology: str, victim: str, place: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them every few seconds while a driver works: one of two executors; or a Python
    process of a source or a task, or what these are forked from."""
    marks = (EXECUTOR,) if victim == "executor" else WORKERS
    if victim == "executor":
        monkeypatch.setenv(MASTER, "local-cluster[2,1,1024]")
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    pipeline = TOPOLOGIES[topology](place, "exactly-once")
    send(pipeline, 60)
    killed = 0
    said = b""
    with start(store, topology, place, "exactly-once") as driver:
        while driver.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                said = driver.communicate(timeout=chance.uniform(3, 10))[1]
            if killed < 4 and (running := processes_below(driver.pid, *marks)):
                with contextlib.suppress(OSError):
                    chosen = chance.choice(running)
                    command = Path(f"/proc/{chosen}/cmdline").read_bytes().split(b"\0")
                    os.kill(chosen, signal.SIGKILL)
                    killed += 1
                    print("kill", [each for each in command if b"spark" in each][:3])
    print("killed", killed, "the driver ended with", driver.returncode, said.decode()[-8000:])
    assert killed
    assert run(store, topology, place, "exactly-once", timeout=1200) == 0
    assert found(pipeline) == Counter(range(60))
    tried = hashes(maps(pipeline))
    assert tried
    assert all(len(each) == 1 for each in tried.values())
