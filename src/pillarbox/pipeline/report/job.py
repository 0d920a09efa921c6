"""The report as a Spark job: one pass over the history of a store or of one of its mailboxes.

Times are those of the log, so what was never delivered or never acknowledged has none. A
delivery's processing time ends with its acknowledgement; the last delivery counts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.places import directory_of
from pillarbox.spark.place import place_of

_SCHEMA = (
    "`index` BIGINT, `id` STRING, `queue` STRING, `kind` STRING, `time` TIMESTAMP,"
    " `enqueued_at` TIMESTAMP, `details` STRING"
)
_KINDS = "sent,scheduled,leased,acknowledged,returned,died,died_in_line"
_PERCENTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_ACCURACY = 10_000


@dataclass(frozen=True, slots=True)
class Report:
    """The tables of a report, as rows for a page; they lie as Parquet beside it."""

    url: str
    every: str
    queues: list[dict[str, Any]]
    minutes: list[dict[str, Any]]
    reasons: list[dict[str, Any]]


def make_report(
    spark: SparkSession,
    url: str,
    directory: str | os.PathLike[str],
    *,
    every: str = "1 minute",
    start: str = "earliest",
    end: str = "latest",
) -> Report:
    """Compute the tables and write them as Parquet below `directory`."""
    check_history(url)
    events = _events(spark, url, start, end).persist()
    try:
        tables = {
            "queues": _figures(events, []).orderBy("queue"),
            "minutes": _figures(events, [F.window("time", every).start.alias("minute")]).orderBy(
                "queue", "minute"
            ),
            "reasons": _reasons(events),
        }
        rows = {}
        for name, table in tables.items():
            path = Path(directory, f"{name}.parquet").absolute()
            table.coalesce(1).write.mode("overwrite").parquet(f"file:{path}")
            written = spark.read.parquet(f"file:{path}")
            rows[name] = [row.asDict() for row in written.collect()]
    finally:
        events.unpersist()
    return Report(url, every, **rows)


def check_history(url: str) -> None:
    """Raise if there is nothing at this URL that a report can be made of."""
    if directory_of(url) is not None and place_of(url).store is None:
        raise PipelineError(f"{url} is a plain log; a report needs a mailbox or a store")


def _events(spark: SparkSession, url: str, start: str, end: str) -> DataFrame:
    """Each event with what came before it in the life of the same message."""
    history = (
        spark.read.format("pillarbox")
        .schema(_SCHEMA)
        .options(kinds=_KINDS, start=start, end=end)
        .load(url)
    )
    life = Window.partitionBy("queue", "id").orderBy("index")
    is_lease = F.col("kind") == "leased"
    number = F.get_json_object("details", "$[1]").cast("int")
    return history.select(
        "*",
        F.when(is_lease, number).alias("number"),
        F.last(F.when(is_lease, F.col("time")), ignorenulls=True)
        .over(life.rowsBetween(Window.unboundedPreceding, -1))
        .alias("leased_at"),
    )


def _figures(events: DataFrame, by: list[Column]) -> DataFrame:
    """Counts and percentiles for each queue, and for each stretch of time if asked for."""
    kind = F.col("kind")
    first = (kind == "leased") & (F.col("number") == 1)
    waited = F.when(first, _milliseconds(F.col("enqueued_at"), F.col("time")))
    worked = F.when(kind == "acknowledged", _milliseconds(F.col("leased_at"), F.col("time")))
    figures = [
        F.count_if(kind.isin("sent", "scheduled")).alias("sent"),
        F.count_if(kind == "leased").alias("delivered"),
        F.count_if(kind == "acknowledged").alias("acknowledged"),
        F.count_if((kind == "leased") & (F.col("number") > 1)).alias("redelivered"),
        F.count_if(kind.isin("died", "died_in_line")).alias("died"),
        *_percentiles(waited, "waited_ms"),
        *_percentiles(worked, "worked_ms"),
    ]
    return events.where("queue IS NOT NULL").groupBy("queue", *by).agg(*figures)


def _percentiles(value: Column, name: str) -> list[Column]:
    return [
        F.percentile_approx(value, share, _ACCURACY).alias(f"{name}_{label}")
        for label, share in _PERCENTS.items()
    ]


def _milliseconds(start: Column, end: Column) -> Column:
    """From one moment to another; what rounding makes negative is none at all."""
    return F.greatest(F.lit(0.0), (F.unix_micros(end) - F.unix_micros(start)) / 1000)


def _reasons(events: DataFrame) -> DataFrame:
    """Dead letters by their queue and the reason of their death."""
    in_line = F.col("kind") == "died_in_line"
    text = F.when(in_line, F.get_json_object(F.concat(F.lit("["), "details", F.lit("]")), "$[0]"))
    reason = text.otherwise(F.get_json_object("details", "$[1]"))
    dead = events.where("kind IN ('died', 'died_in_line')")
    counted = dead.groupBy("queue", reason.alias("reason")).agg(F.count("*").alias("messages"))
    return counted.orderBy("queue", F.desc("messages"))
