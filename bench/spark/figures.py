"""`python -m bench.spark.figures latency|cores|read ...`: figures that need their own session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.durable.place import work_directory
from bench.harness import Figure, Probe, Sized
from bench.spark.data import message, spark_session, write_log
from pillarbox.log import Log

MESSAGES = 2_000_000
SENDS = 40


def latency(sized: Sized) -> Probe:
    figures = (Figure("p50", "append to output, p50", "ms"), Figure("most", "longest", "ms"))
    sends = str(max(5, sized(SENDS)))
    return Probe("end-to-end latency", "bench.spark.figures", ("latency", sends), figures)


def cores(sized: Sized) -> Probe:
    figures = (
        Figure("speedup", "reading on 2 cores instead of 1", "x", at_least=1.6),
        Figure("tasks", "reading with 2 tasks instead of 1, both on 2 cores", "x"),
    )
    count = str(sized(MESSAGES))
    return Probe("scaling with cores", "bench.spark.figures", ("cores", count), figures)


def measure_latency(sends: int) -> dict[str, float]:
    """One record at a time: how long until a stream has it in its output."""
    spark = spark_session()
    took = []
    with work_directory() as place, Log.open(place / "in") as log:
        log.append(message(0))
        rows = spark.readStream.format("pillarbox").schema("body BINARY").load(str(place / "in"))
        writer = rows.writeStream.format("pillarbox").option("processor", "bench")
        writer = writer.option("checkpointLocation", str(place / "checkpoint"))
        query = writer.start(str(place / "out"))
        query.processAllAvailable()
        for number in range(1, sends + 1):
            start = time.perf_counter()
            log.append(message(number))
            _wait_for(place / "out", number + 1)
            took.append((time.perf_counter() - start) * 1000)
        query.stop()
    return {"p50": median(took), "most": max(took)}


def _wait_for(path: Path, count: int) -> None:
    with Log.open(path, readonly=True) as log:
        while log.end_index < count:
            log.refresh()


def measure_cores(count: int) -> dict[str, float]:
    """A task takes more than a core: a thread of Spark, and the Python that feeds it.

    So one core is a machine that has no other: the processes can't run elsewhere.
    """
    with work_directory() as place:
        write_log(place / "data", count)
        alone = _seconds("local[1]", place / "data", cores=1)
        one, two = (_seconds(f"local[{n}]", place / "data", cores=2) for n in (1, 2))
    return {"speedup": alone / two, "tasks": one / two}


def _seconds(master: str, path: Path, cores: int) -> float:
    """In a process of its own, because a JVM is never told of other cores."""
    command = (sys.executable, "-m", "bench.spark.figures", "read", master, str(path), str(cores))
    return float(json.loads(subprocess.check_output(command)))


def measure_read(master: str, path: str, cores: str) -> float:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    spark = spark_session(master)
    return min(_read(spark, Path(path)) for _ in range(5))


def _read(spark: Any, path: Path) -> float:
    start = time.perf_counter()
    frame = spark.read.format("pillarbox").schema("index BIGINT, body BINARY").load(str(path))
    frame.selectExpr("sum(crc32(body))").collect()
    return time.perf_counter() - start


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "read":
        print(json.dumps(measure_read(*given)))
    else:
        measure = {"latency": measure_latency, "cores": measure_cores}[what]
        print(json.dumps(measure(int(given[0]))))
