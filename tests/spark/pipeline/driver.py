"""Runs a pipeline in a process of its own, which may kill itself after a certain act of a step.

python -m tests.spark.pipeline.driver TOPOLOGY PLACE [STRATEGY [ACT NUMBER]]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from pillarbox.mailbox.data_directory import is_log
from pillarbox.pipeline import Pipeline, sinks
from pillarbox.spark.location import is_remote_store
from pillarbox.spark.steps import Step
from tools.s3_jars import jars

ROWS_PER_STEP = 10
#: Two executors of their own, if the environment says so.
MASTER = "PILLARBOX_TEST_MASTER"


class Word(msgspec.Struct):
    number: int
    text: str


class Count(msgspec.Struct):
    number: int
    count: int


def words(count: int, text: str = "word") -> list[Word]:
    return [Word(number, f"{text} {number}") for number in range(count)]


def chain(place: str, strategy: Any = "exactly-once") -> Pipeline:
    pipeline = _with_inputs(place, "words")
    pipeline.log("middle", Word)
    pipeline.log("out", Word)
    options = {"strategy": strategy}
    pipeline.stream(inputs="words", outputs="middle", id="first", **options)(lambda words: words)
    pipeline.stream(inputs="middle", outputs="out", id="second", **options)(lambda words: words)
    return pipeline


def join(place: str, strategy: Any = "exactly-once") -> Pipeline:
    pipeline = _with_inputs(place, "words", "others")
    pipeline.log("out", Word)

    @pipeline.stream(inputs=["words", "others"], outputs="out", strategy=strategy)
    def pair(words: DataFrame, others: DataFrame) -> DataFrame:
        return words.join(others.select("number"), "number").select("number", "text")

    return pipeline


def aggregation(place: str, strategy: Any = "exactly-once") -> Pipeline:
    pipeline = _with_inputs(place, "words")
    pipeline.log("out", Count)

    @pipeline.stream(inputs="words", outputs="out", mode="update", strategy=strategy)
    def count(words: DataFrame) -> DataFrame:
        return words.groupBy("number").count()

    return pipeline


def fan_out(place: str, strategy: Any = "exactly-once") -> Pipeline:
    """Even numbers to the left, odd ones to the right, both together again; left ones to a sink."""
    pipeline = _with_inputs(place, "words")
    for name in ("left", "right", "out"):
        pipeline.log(name, Word)

    @pipeline.stream(inputs="words", outputs=["left", "right"], strategy=strategy)
    def split(words: DataFrame) -> dict[str, DataFrame]:
        return {"left": words.where("number % 2 = 0"), "right": words.where("number % 2 = 1")}

    @pipeline.stream(inputs=["left", "right"], outputs="out", strategy=strategy)
    def together(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.select("number", "text").union(right.select("number", "text"))

    if is_remote_store(place):
        return pipeline
    beside = Path(place).parent
    archive = sinks.parquet(beside / "archive")

    @pipeline.sink(inputs="left")
    def ship(batch: DataFrame, step: Step) -> None:
        with (beside / "hashes").open("a") as file:
            file.write(f"{step.hash}\n")
        archive(batch, step)

    return pipeline


TOPOLOGIES: dict[str, Callable[..., Pipeline]] = {
    "chain": chain,
    "join": join,
    "aggregation": aggregation,
    "fan_out": fan_out,
}


def _with_inputs(place: str, *names: str) -> Pipeline:
    """Inputs are the row logs beside the pipeline, if a test has written some; else typed logs."""
    pipeline = Pipeline("p", path=place)
    for name in names:
        beside = os.path.join(os.path.dirname(place), name)
        pipeline.log(name, Word, url=f"file:{beside}" if is_log(beside) else None)
    return pipeline


def killing(act: str, number: int) -> Callable[[str], None]:
    """Dies at the nth time that this act is done."""
    left = [number]

    def window(done: str) -> None:
        if done == act:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return window


def main(
    topology: str, place: str, strategy: str = "exactly-once", act: str = "", number: str = "0"
) -> None:
    options: dict[str, Any] = {"on_phase": killing(act, int(number))} if act else {}
    conf = {"spark.log.level": "OFF"}
    if place.startswith("s3a:"):
        conf["spark.jars"] = ",".join(map(str, jars()))
    master = os.environ.get(MASTER, "local[2]")
    pipeline = TOPOLOGIES[topology](place, strategy)
    run = pipeline.run(
        available_now=True, max_rows=ROWS_PER_STEP, master=master, conf=conf, **options
    )
    run.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
