"""What a plan tells: whether a stream keeps state, and which columns it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct, defstruct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pillarbox.pipeline.graph import LogRef
from pillarbox.pipeline.plan import keeps_state, probe, used_columns


class Order(Struct):
    number: int
    tea: str
    grams: int


NAMES = {"number", "tea", "grams", "_index", "_time"}
Function = Callable[[DataFrame], DataFrame]


def other(rows: DataFrame) -> DataFrame:
    """Rows that do not stream."""
    return rows.sparkSession.range(3)


ROW_BY_ROW: dict[str, tuple[Function, set[str]]] = {
    "where": (lambda rows: rows.where("grams > 5").select("tea"), {"grams", "tea"}),
    "all": (lambda rows: rows, NAMES),
    "explode": (lambda rows: rows.select(F.explode(F.split("tea", " ")).alias("word")), {"tea"}),
    "union": (lambda rows: rows.select("tea").union(rows.select("tea")), {"tea"}),
    "static join": (
        lambda rows: rows.join(other(rows), rows.number == F.col("id")).select("id"),
        {"number"},
    ),
    "static outer join": (
        lambda rows: rows.join(other(rows), rows.number == F.col("id"), "left").select("id"),
        {"number"},
    ),
    "static join of a union": (
        lambda rows: rows.union(rows).join(other(rows), F.col("number") == F.col("id")),
        NAMES,
    ),
}
KEEPS_STATE: dict[str, tuple[Function, set[str]]] = {
    "sum": (lambda rows: rows.groupBy("tea").sum("grams"), {"tea", "grams"}),
    "count": (lambda rows: rows.groupBy().count(), set()),
    "distinct": (lambda rows: rows.dropDuplicates(["tea"]), NAMES),
    "watermark": (
        lambda rows: rows.withWatermark("_time", "1 hour").select("tea"),
        {"_time", "tea"},
    ),
    "distinct before a choice": (lambda rows: rows.distinct().select("tea"), NAMES),
    "self-join": (
        lambda rows: rows.alias("a").join(rows.alias("b"), "number").select("a.tea", "b.grams"),
        {"number", "tea", "grams"},
    ),
    # These repeat rows that do not stream with each step: Spark refuses them as streams.
    "outer join from the other side": (
        lambda rows: other(rows).join(rows, F.col("id") == rows.number, "left").select("tea"),
        {"number", "tea"},
    ),
    "union with others": (
        lambda rows: rows.select("number").union(other(rows)),
        {"number"},
    ),
    "others": (other, set()),
}


@pytest.mark.parametrize("name", [*ROW_BY_ROW, *KEEPS_STATE])
def test_R80_a_plan_tells_whether_state_is_kept_and_what_is_used(name: str, spark: Any) -> None:
    function, used = (ROW_BY_ROW | KEEPS_STATE)[name]
    made = function(probe(spark, LogRef("orders", "file:./orders", Order)))
    assert keeps_state([made]) is (name in KEEPS_STATE)
    assert used <= used_columns([made], NAMES)
    if name in ("where", "sum", "count", "explode"):
        assert used == used_columns([made], NAMES)


def test_R80_a_condition_counts_as_use(spark: Any) -> None:
    log = LogRef("orders", "file:./orders", Order).where("number > 3")
    made = probe(spark, log).groupBy("tea").sum("grams")
    assert used_columns([made], NAMES) == {"number", "tea", "grams"}


def test_R80_all_columns_of_a_wide_input_count_as_used(spark: Any) -> None:
    """Spark truncates the text of a plan after 25 columns; the others would be read as null."""
    names = [f"c{number}" for number in range(40)]
    wide = defstruct("Wide", [("tea", str), *((name, int) for name in names)])
    rows = probe(spark, LogRef("wide", "file:./wide", wide))
    summed = rows.groupBy("tea").agg(*(F.sum(name).alias(f"sum_{name}") for name in names))
    deduplicated = rows.withWatermark("_time", "1 hour").dropDuplicates(["tea"])
    as_json = deduplicated.select(F.to_json(F.struct(*names)).alias("body"))
    for made in (summed, as_json):
        assert keeps_state([made])
        assert used_columns([made], [*names, "tea", "_index"]) == {*names, "tea"}


def test_R80_columns_that_a_union_gives_another_name_count_as_used(spark: Any) -> None:
    left, right = defstruct("Left", [("tea", str)]), defstruct("Right", [("leaf", str)])
    logs = LogRef("left", "file:./left", left), LogRef("right", "file:./right", right)
    both = [probe(spark, log) for log in logs]
    made = both[0].union(both[1]).groupBy("tea").count()
    assert {"tea", "leaf"} <= used_columns([made], ["tea", "leaf"])
