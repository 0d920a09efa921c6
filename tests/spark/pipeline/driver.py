"""Runs a pipeline in a process of its own, which may kill itself after a certain act of a step.

python -m tests.spark.pipeline.driver TOPOLOGY PATH [ACT NUMBER]
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

from pillarbox.pipeline import Pipeline, sinks
from pillarbox.spark.steps import Step

ROWS_PER_STEP = 10


class Word(msgspec.Struct):
    number: int
    text: str


class Count(msgspec.Struct):
    number: int
    count: int


def words(count: int, text: str = "word") -> list[Word]:
    return [Word(number, f"{text} {number}") for number in range(count)]


def chain(path: Path) -> Pipeline:
    pipeline = _with_inputs(path, "words")
    pipeline.log("middle", Word)
    pipeline.log("out", Word)
    pipeline.stream(inputs="words", outputs="middle", id="first")(lambda words: words)
    pipeline.stream(inputs="middle", outputs="out", id="second")(lambda words: words)
    return pipeline


def join(path: Path) -> Pipeline:
    pipeline = _with_inputs(path, "words", "others")
    pipeline.log("out", Word)

    @pipeline.stream(inputs=["words", "others"], outputs="out")
    def pair(words: DataFrame, others: DataFrame) -> DataFrame:
        return words.join(others.select("number"), "number").select("number", "text")

    return pipeline


def aggregation(path: Path) -> Pipeline:
    pipeline = _with_inputs(path, "words")
    pipeline.log("out", Count)

    @pipeline.stream(inputs="words", outputs="out", mode="update")
    def count(words: DataFrame) -> DataFrame:
        return words.groupBy("number").count()

    return pipeline


def fan_out(path: Path) -> Pipeline:
    """Even numbers to the left, odd ones to the right, and the left ones on to two sinks."""
    pipeline = _with_inputs(path, "words")
    pipeline.log("left", Word)
    pipeline.log("right", Word)

    @pipeline.stream(inputs="words", outputs=["left", "right"])
    def split(words: DataFrame) -> dict[str, DataFrame]:
        return {"left": words.where("number % 2 = 0"), "right": words.where("number % 2 = 1")}

    archive = sinks.parquet(path / "archive")

    @pipeline.sink(inputs="left")
    def ship(batch: DataFrame, step: Step) -> None:
        with (path / "hashes").open("a") as file:
            file.write(f"{step.hash}\n")
        archive(batch, step)

    return pipeline


TOPOLOGIES: dict[str, Callable[[Path], Pipeline]] = {
    "chain": chain,
    "join": join,
    "aggregation": aggregation,
    "fan_out": fan_out,
}


def _with_inputs(path: Path, *names: str) -> Pipeline:
    pipeline = Pipeline("p", path=path / "p")
    for name in names:
        pipeline.log(name, Word, url=f"file:{path}/{name}")
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


def main(topology: str, path: str, act: str = "", number: str = "0") -> None:
    options: dict[str, Any] = {"on_phase": killing(act, int(number))} if act else {}
    pipeline = TOPOLOGIES[topology](Path(path))
    pipeline.run(available_now=True, max_rows=ROWS_PER_STEP, **options).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
