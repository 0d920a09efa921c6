"""Runs a pipeline on a remote store in a process of its own, which may kill itself after an act.

python -m tests.spark.s3.driver TOPOLOGY URL STRATEGY [ACT NUMBER]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from pillarbox.pipeline import Pipeline
from tests.spark.pipeline.driver import Count, Word, killing
from tools.s3_jars import jars

ROWS_PER_STEP = 10


def chain(url: str, strategy: Any) -> Pipeline:
    pipeline = Pipeline("p", path=url)
    for name in ("words", "middle", "out"):
        pipeline.log(name, Word)
    options = {"strategy": strategy}
    pipeline.stream(inputs="words", outputs="middle", id="first", **options)(lambda words: words)
    pipeline.stream(inputs="middle", outputs="out", id="second", **options)(lambda words: words)
    return pipeline


def aggregation(url: str, strategy: Any) -> Pipeline:
    pipeline = Pipeline("p", path=url)
    pipeline.log("words", Word)
    pipeline.log("out", Count)

    @pipeline.stream(inputs="words", outputs="out", mode="update", strategy=strategy)
    def count(words: DataFrame) -> DataFrame:
        return words.groupBy("number").count()

    return pipeline


def join(url: str, strategy: Any) -> Pipeline:
    pipeline = Pipeline("p", path=url)
    for name in ("words", "others", "out"):
        pipeline.log(name, Word)

    @pipeline.stream(inputs=["words", "others"], outputs="out", strategy=strategy)
    def pair(words: DataFrame, others: DataFrame) -> DataFrame:
        return words.join(others.select("number"), "number").select("number", "text")

    return pipeline


def fan_out(url: str, strategy: Any) -> Pipeline:
    """Even numbers to the left, odd ones to the right, and both together again."""
    pipeline = Pipeline("p", path=url)
    for name in ("words", "left", "right", "out"):
        pipeline.log(name, Word)

    @pipeline.stream(inputs="words", outputs=["left", "right"], strategy=strategy)
    def split(words: DataFrame) -> dict[str, DataFrame]:
        return {"left": words.where("number % 2 = 0"), "right": words.where("number % 2 = 1")}

    @pipeline.stream(inputs=["left", "right"], outputs="out", strategy=strategy)
    def together(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.select("number", "text").union(right.select("number", "text"))

    return pipeline


TOPOLOGIES: dict[str, Callable[[str, Any], Pipeline]] = {
    "chain": chain,
    "aggregation": aggregation,
    "join": join,
    "fan_out": fan_out,
}
#: Two executors of their own, if the environment says so.
MASTER = "PILLARBOX_TEST_MASTER"


def main(topology: str, url: str, strategy: str, act: str = "", number: str = "0") -> None:
    options: dict[str, Any] = {"on_phase": killing(act, int(number))} if act else {}
    conf = {"spark.log.level": "OFF"}
    if url.startswith("s3a:"):
        conf["spark.jars"] = ",".join(map(str, jars()))
    pipeline = TOPOLOGIES[topology](url, strategy)
    options["master"] = os.environ.get(MASTER, "local[2]")
    pipeline.run(available_now=True, max_rows=ROWS_PER_STEP, conf=conf, **options).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
