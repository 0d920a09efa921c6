"""Computes the report with Spark: one pass over the history of a store or a mailbox.

The time of a delivery is the start of its lease; of any other event, its time in the log. Messages
that were never delivered or acknowledged have no waiting or processing time. Processing time is
from the last delivery to the acknowledgement.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pillarbox.pipeline.errors import PipelineError
from pillarbox.spark.location import data_directory_of, location_of, without_secret

_SCHEMA = (
    "`index` BIGINT, `id` STRING, `queue` STRING, `kind` STRING, `time` TIMESTAMP,"
    " `enqueued_at` TIMESTAMP, `details` STRING"
)
_KINDS = "sent,scheduled,leased,acknowledged,returned,died,died_in_line"
_LENGTH = r"0*[1-9]\d* (millisecond|second|minute|hour|day|week)s?"
_INTERVAL = re.compile(rf"{_LENGTH}( {_LENGTH})*", re.IGNORECASE | re.ASCII)
_PERCENTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_ACCURACY = 10_000


@dataclass(frozen=True, slots=True)
class Report:
    """The tables of a report, as rows for the page. They are also written as Parquet."""

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
    check_history(url, every)
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
    return Report(without_secret(url), every, **rows)


def check_history(url: str, every: str) -> None:
    """Raise a PipelineError if there can be no report on this URL with such intervals."""
    if not _INTERVAL.fullmatch(every):
        raise PipelineError(
            "the interval must be a number and a unit, such as '5 minutes' or '1 day';"
            f" got {every!r}"
        )
    if location_of(url) is not None and data_directory_of(url).store is None:
        raise PipelineError(f"{url} is a plain log; a report needs a mailbox or a store")


def _events(spark: SparkSession, url: str, start: str, end: str) -> DataFrame:
    """Return each event, with the time of the last lease of the same message before it."""
    history = (
        spark.read.format("pillarbox")
        .schema(_SCHEMA)
        .options(kinds=_KINDS, start=start, end=end)
        .load(url)
    )
    life = Window.partitionBy("queue", "id").orderBy("index")
    is_lease = F.col("kind") == "leased"
    number = _detail("number").cast("int")
    leased_at = F.expr(
        "timestamp_micros(CAST(get_json_object(details, '$[2]') AS BIGINT) DIV 1000)"
    )
    event_time = F.when(is_lease, F.coalesce(leased_at, "time")).otherwise(F.col("time"))
    return history.withColumn("time", event_time).select(
        "*",
        F.when(is_lease, number).alias("number"),
        F.last(F.when(is_lease, F.col("time")), ignorenulls=True)
        .over(life.rowsBetween(Window.unboundedPreceding, -1))
        .alias("leased_at"),
    )


def _figures(events: DataFrame, by: list[Column]) -> DataFrame:
    """Return counts and percentiles for each queue, further grouped by `by`."""
    kind = F.col("kind")
    first = (kind == "leased") & (F.col("number") == 1)
    waited = F.when(first, _milliseconds(F.col("enqueued_at"), F.col("time")))
    worked = F.when(kind == "acknowledged", _milliseconds(F.col("leased_at"), F.col("time")))
    counts = [
        F.count_if(kind.isin("sent", "scheduled")).alias("sent"),
        F.count_if(kind == "leased").alias("delivered"),
        F.count_if(kind == "acknowledged").alias("acknowledged"),
        F.count_if((kind == "leased") & (F.col("number") > 1)).alias("redelivered"),
        F.count_if(kind.isin("died", "died_in_line")).alias("died"),
    ]
    # One sketch of each value yields all of its percentiles.
    shares = list(_PERCENTS.values())
    times = {"waited_ms": waited, "worked_ms": worked}
    summaries = [
        F.percentile_approx(value, shares, _ACCURACY).alias(name) for name, value in times.items()
    ]
    grouped = events.where("queue IS NOT NULL").groupBy("queue", *by).agg(*counts, *summaries)
    kept = [each for each in grouped.columns if each not in times]
    return grouped.select(
        *kept,
        *(
            F.col(name)[position].alias(f"{name}_{label}")
            for name in times
            for position, label in enumerate(_PERCENTS)
        ),
    )


def _milliseconds(start: Column, end: Column) -> Column:
    """Return the time between two timestamps; 0 if rounding made it negative."""
    return F.greatest(F.lit(0.0), (F.unix_micros(end) - F.unix_micros(start)) / 1000)


def _detail(name: str) -> Column:
    """Return a detail of an event: the second, or by its name if details have names (Redis)."""
    return F.coalesce(*(F.get_json_object("details", path) for path in ("$[1]", f"$.{name}")))


def _reasons(events: DataFrame) -> DataFrame:
    """Count dead letters by queue and reason."""
    in_line = F.col("kind") == "died_in_line"
    text = F.when(in_line, F.get_json_object(F.concat(F.lit("["), "details", F.lit("]")), "$[0]"))
    reason = text.otherwise(_detail("reason"))
    dead = events.where("kind IN ('died', 'died_in_line')")
    counted = dead.groupBy("queue", reason.alias("reason")).agg(F.count("*").alias("messages"))
    return counted.orderBy("queue", F.desc("messages"))
