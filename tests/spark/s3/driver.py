"""Runs a pipeline on S3 in a process of its own, which may kill itself after an act of a step.

python -m tests.spark.s3.driver TOPOLOGY URL STRATEGY [ACT NUMBER]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from pillarbox.pipeline import Pipeline
from tests.spark.pipeline.driver import Word, killing
from tools.s3_jars import jars

ROWS_PER_STEP = 10


class Count(msgspec.Struct):
    number: int
    count: int


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


TOPOLOGIES: dict[str, Callable[[str, Any], Pipeline]] = {"chain": chain, "aggregation": aggregation}


def main(topology: str, url: str, strategy: str, act: str = "", number: str = "0") -> None:
    options: dict[str, Any] = {"on_phase": killing(act, int(number))} if act else {}
    conf = {"spark.jars": ",".join(map(str, jars())), "spark.log.level": "OFF"}
    pipeline = TOPOLOGIES[topology](url, strategy)
    pipeline.run(available_now=True, max_rows=ROWS_PER_STEP, conf=conf, **options).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
