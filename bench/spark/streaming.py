"""Streams: log to log, exactly once and synced, beside Spark's Parquet to Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.durable.place import work_directory
from bench.harness import Contender, Race, Run, Sized, Versus
from bench.spark.data import as_spark_comes, spark_session, write_log, write_parquet

MESSAGES = 5_000_000
BATCHES = 50
ROWS_IN_BATCH = 10
Stream = Callable[[Any, Path, Path, int], Any]


def _log_to_log(spark: Any, source: Path, target: Path, rows: int) -> Any:
    reader = spark.readStream.format("pillarbox").schema("body BINARY")
    frame = reader.option("maxRowsPerTrigger", rows).load(str(source))
    writer = frame.writeStream.format("pillarbox").option("processor", "bench")
    return writer, str(target / "out")


def _parquet_to_parquet(_: Any, source: Path, target: Path, rows: int) -> Any:
    return _with_our_settings(as_spark_comes(), source, target, rows)


def _with_our_settings(spark: Any, source: Path, target: Path, rows: int) -> Any:
    reader = spark.readStream.schema("index BIGINT, body BINARY")
    frame = reader.option("maxFilesPerTrigger", 1).parquet(str(source)).select("body")
    return frame.writeStream.format("parquet"), str(target / "out")


@contextmanager
def _streaming(
    stream: Stream, write: Callable[[Path, int], None], count: int, rows: int
) -> Iterator[Run]:
    spark = spark_session()
    with work_directory() as place:
        write(place / "data", count)
        rounds = iter(range(1000))

        def run(_: int) -> None:
            target = place / f"round-{next(rounds)}"
            writer, out = stream(spark, place / "data", target, rows)
            writer = writer.option("checkpointLocation", str(target / "checkpoint"))
            writer.trigger(availableNow=True).start(out).awaitTermination()

        yield run


def copying(sized: Sized) -> Race:
    """Few large batches: what moving the bytes costs."""
    many = sized(MESSAGES)
    goal = Versus("parquet to parquet", speed_at_least=0.6)
    log = partial(_streaming, _log_to_log, write_log, many, -(-many // 4))
    files = partial(_streaming, _parquet_to_parquet, partial(write_parquet, files=4), many, 0)
    return Race(
        f"a stream of {many:,} messages, four batches",
        (
            Contender("log to log", log, many, (goal,), "exactly once, synced"),
            Contender("parquet to parquet", files, many, (), "not synced, Spark as it comes"),
        ),
        rounds=3,
    )


def stepping(sized: Sized) -> Race:
    """Many small batches: what a step costs by itself."""
    steps = max(4, sized(BATCHES))
    rows = steps * ROWS_IN_BATCH
    goal = Versus("parquet to parquet", cost_at_most=1.5)
    log = partial(_streaming, _log_to_log, write_log, rows, ROWS_IN_BATCH)
    write = partial(write_parquet, files=steps)
    files = partial(_streaming, _parquet_to_parquet, write, rows, 0)
    tuned = partial(_streaming, _with_our_settings, write, rows, 0)
    return Race(
        f"{steps} batches of {ROWS_IN_BATCH} messages: cost of a batch",
        (
            Contender("log to log", log, steps, (goal,), "exactly once, synced"),
            Contender("parquet to parquet", files, steps, (), "not synced, Spark as it comes"),
            Contender("the same, our settings", tuned, steps, (), "not synced"),
        ),
        rounds=3,
    )
