"""`python -m bench.spark.figures latency|cores N`: figures that need a session of their own."""

from __future__ import annotations

import json
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
    figures = (Figure("speedup", "reading with 2 cores instead of 1", "x", at_least=1.6),)
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
    with work_directory() as place:
        write_log(place / "data", count)
        seconds = [_seconds(f"local[{number}]", place / "data") for number in (1, 2)]
    return {"speedup": seconds[0] / seconds[1]}


def _seconds(master: str, path: Path) -> float:
    spark_session.cache_clear()
    spark = spark_session(master)
    best = min(_read(spark, path) for _ in range(3))
    spark.stop()
    return best


def _read(spark: Any, path: Path) -> float:
    start = time.perf_counter()
    frame = spark.read.format("pillarbox").schema("index BIGINT, body BINARY").load(str(path))
    frame.selectExpr("sum(crc32(body))").collect()
    return time.perf_counter() - start


if __name__ == "__main__":
    measure = {"latency": measure_latency, "cores": measure_cores}[sys.argv[1]]
    print(json.dumps(measure(int(sys.argv[2]))))
