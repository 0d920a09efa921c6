"""Reading a history with Spark: Arrow batches from segments, Parquet, and rows as tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.durable.place import work_directory
from bench.harness import Contender, Race, Run, Sized, Versus
from bench.spark.data import spark_session, write_log, write_parquet

MESSAGES = 5_000_000
Load = Callable[[Any, Path], Any]


def _pillarbox(spark: Any, path: Path) -> Any:
    return spark.read.format("pillarbox").schema("index BIGINT, body BINARY").load(str(path))


def _parquet(spark: Any, path: Path) -> Any:
    return spark.read.parquet(str(path))


def _tuples(spark: Any, path: Path) -> Any:
    return spark.read.format("tuples").load(str(path))


@contextmanager
def _reading(load: Load, write: Callable[[Path, int], None], count: int) -> Iterator[Run]:
    spark = spark_session()
    with work_directory() as place:
        write(place / "data", count)

        def run(_: int) -> None:
            load(spark, place / "data").write.format("noop").mode("overwrite").save()

        yield run


def reading(sized: Sized) -> Race:
    many = sized(MESSAGES)
    few = max(1, many // 10)
    as_parquet = partial(write_parquet, files=4)
    goals = (Versus("parquet", speed_at_least=0.8), Versus("tuples", speed_at_least=10))
    return Race(
        f"reading {many:,} messages of 200 bytes",
        (
            Contender("pillarbox", partial(_reading, _pillarbox, write_log, many), many, goals),
            Contender("parquet", partial(_reading, _parquet, as_parquet, many), many),
            Contender("tuples", partial(_reading, _tuples, write_log, few), few),
        ),
        rounds=5,
    )
