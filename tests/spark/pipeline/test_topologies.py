"""Chains, joins, fan-outs and aggregations, from log to log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pillarbox import open_mailbox
from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.failures import failures, redrive
from pillarbox.pipeline.status import ends, labels, read_status
from tests.spark.pipeline.support import crash, finish, read, read_json, write


class Order(Struct):
    number: int
    tea: str
    grams: int = 100


class Payment(Struct):
    order: int
    pence: int


class Paid(Struct):
    number: int
    tea: str
    pence: int


class Total(Struct):
    tea: str
    grams: int


def orders(count: int) -> list[Order]:
    return [Order(n, ("Assam", "Ceylon")[n % 2], n) for n in range(count)]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline("shop", path=tmp_path / "shop")


def double(order: Order) -> Any:
    if order.number == 3:
        raise ValueError("number three is unlucky")
    if order.number == 4:
        return None
    return {"large": [order, order]} if order.grams > 8 else {"small": order.tea}


def test_R80_a_chain_of_a_generator_a_stream_and_a_sink(pipeline: Pipeline, spark: Any) -> None:
    source = pipeline.log("orders", Order)
    heavy = pipeline.log("heavy", Order)
    handed_over: list[tuple[int, str]] = []

    @pipeline.source(outputs=source)
    def shop():  # type: ignore[no-untyped-def]
        yield from orders(10)
        yield orders(10)

    @pipeline.stream(inputs=source.where("tea = 'Ceylon'"), outputs=heavy)
    def only_heavy(orders: DataFrame) -> DataFrame:
        return orders.where("grams > 5")

    @pipeline.sink(inputs=heavy)
    def ship(batch: DataFrame, step: Any) -> None:
        handed_over.extend((row.number, step.hash) for row in batch.collect())

    finish(pipeline, spark)
    assert sorted(each["number"] for each in read_json(pipeline.directory("heavy"))) == [7, 7, 9, 9]
    assert sorted(number for number, _ in handed_over) == [7, 7, 9, 9]
    assert {len(hash_) for _, hash_ in handed_over} == {64}
    status = read_status(pipeline.paths.status)
    assert {each.state for each in status.processors.values()} == {"done"}
    assert status.processors["only_heavy"].rows == 20
    assert status.processors["only_heavy"].step_milliseconds > 0
    edges = labels(pipeline.graph, status, ends(pipeline.graph))
    assert edges["log:orders", "processor:only_heavy"] == "lag 0"
    assert edges["processor:only_heavy", "log:heavy"].endswith("/s")


def test_R80_two_inputs_are_joined(pipeline: Pipeline, spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "orders", orders(20))
    write(tmp_path / "payments", [Payment(n, n * 10) for n in range(5, 25)])
    source = pipeline.log("orders", Order, url=f"file:{tmp_path}/orders")
    payments = pipeline.log("payments", Payment, url=f"file:{tmp_path}/payments")
    paid = pipeline.log("paid", Paid)

    @pipeline.stream(inputs=[payments, source], outputs=paid)
    def join(payments: DataFrame, orders: DataFrame) -> DataFrame:
        both = orders.join(payments, orders.number == payments.order)
        return both.select("number", "tea", "pence")

    finish(pipeline, spark, max_rows=10)
    found = read_json(pipeline.directory("paid"))
    assert sorted(each["number"] for each in found) == list(range(5, 20))
    assert {each["number"]: each["pence"] for each in found} == {n: n * 10 for n in range(5, 20)}
    status = read_status(pipeline.paths.status).processors["join"]
    assert status.read == {"orders": 20, "payments": 20}


def test_R87_what_fails_goes_to_the_error_log_and_the_rest_goes_on(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    junk = [b"junk", b'{"number": 5}', b'{"number": "x", "tea": "y"}']
    write(tmp_path / "orders", [*orders(10), *junk])
    source = pipeline.log("orders", Order, url=f"file:{tmp_path}/orders")
    pipeline.log("large", Order)
    pipeline.log("small", str)
    pipeline.log("totals", Total)
    pipeline.stream(inputs=source, outputs=["large", "small"], each=True)(double)

    @pipeline.stream(inputs=source, outputs="totals")
    def totals(orders: DataFrame) -> DataFrame:
        tea = F.when(F.col("number") == 7, None).otherwise(F.col("tea"))
        return orders.select(tea.alias("tea"), "grams")

    finish(pipeline, spark)
    assert [each["number"] for each in read_json(pipeline.directory("large"))] == [9, 9]
    assert len(read(pipeline.directory("small"))) == 7
    assert len(read(pipeline.directory("totals"))) == 9
    by_each = {f.index: f for _, f in failures(pipeline.errors_directory("double"))}
    assert sorted(by_each) == [3, 10, 11, 12]
    assert by_each[3].cause == "ValueError: number three is unlucky"
    assert (by_each[10].log, by_each[10].body) == ("orders", b"junk")
    assert "`tea`" in by_each[11].cause
    by_frame = [f for _, f in failures(pipeline.errors_directory("totals"))]
    assert {f.index: f.cause for f in by_frame if f.log} == {
        10: "the body can't be read as Order",
        11: "the field 'tea' is missing or null",
        12: "the body can't be read as Order",
    }
    assert [f.cause for f in by_frame if f.output == "totals"] == ["the column 'tea' is null"]


def test_R80_a_function_of_one_record_may_yield(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    """It is a stream all the same, not a source that generates records."""
    write(tmp_path / "orders", orders(3))
    source = pipeline.log("orders", Order, url=f"file:{tmp_path}/orders")
    pipeline.log("copies", Order)

    @pipeline.stream(inputs=source, outputs="copies", each=True)
    def twice(order: Order) -> Iterator[Order]:
        yield order
        yield order

    finish(pipeline, spark)
    numbers = [each["number"] for each in read_json(pipeline.directory("copies"))]
    assert sorted(numbers) == [0, 0, 1, 1, 2, 2]


def test_R87_what_failed_can_be_redriven_once(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    """To where it came from: a log of rows, and a typed log."""
    write(tmp_path / "orders", [*orders(4), b"junk"])
    pipeline.log("orders", Order, url=f"file:{tmp_path}/orders")
    pipeline.log("all", Order)
    pipeline.log("large", Order)
    pipeline.log("small", str)
    pipeline.stream(inputs="orders", outputs="all", id="s")(lambda orders: orders)
    pipeline.stream(inputs="all", outputs=["large", "small"], each=True)(double)
    finish(pipeline, spark)
    for id_ in ("s", "double"):
        path = pipeline.errors_directory(id_)
        assert redrive(pipeline.graph, id_, path) == 1
        assert redrive(pipeline.graph, id_, path) == 0
    assert read(tmp_path / "orders")[4:] == [b"junk"] * 2
    assert read_json(pipeline.directory("all"))[4] == {"number": 3, "tea": "Ceylon", "grams": 3}
    finish(pipeline, spark)
    assert [f.index for _, f in failures(pipeline.errors_directory("double"))] == [3, 4]


def test_R80_an_aggregation_with_a_watermark_goes_on_after_a_restart(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    write(tmp_path / "orders", orders(10))
    source = pipeline.log("orders", Order, url=f"file:{tmp_path}/orders")
    pipeline.log("totals", Total)

    @pipeline.stream(inputs=source, outputs="totals", mode="update")
    def totals(orders: DataFrame) -> DataFrame:
        timed = orders.withWatermark("_time", "1 hour")
        return timed.groupBy("tea").agg(F.sum("grams").alias("grams"))

    finish(pipeline, spark)
    write(tmp_path / "orders", [Order(99, "Assam", 1000)])
    finish(pipeline, spark)
    found = [(each["tea"], each["grams"]) for each in read_json(pipeline.directory("totals"))]
    assert sorted(found) == [("Assam", 20), ("Assam", 1020), ("Ceylon", 25)]


def test_R84_a_mailbox_is_read_by_a_pipeline_while_workers_empty_it(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    with_orders = open_mailbox(f"file:{tmp_path}/store/orders", Order)
    with_orders.send_many(orders(5))
    for message in with_orders.receive(max_messages=5):
        message.acknowledge()
    source = pipeline.log("orders", Order, url=f"file:{tmp_path}/store/orders")
    pipeline.log("copy", Order)
    pipeline.stream(inputs=source, outputs="copy", id="copy-all")(lambda orders: orders)
    finish(pipeline, spark)
    assert sorted(each["number"] for each in read_json(pipeline.directory("copy"))) == [*range(5)]
    with_orders.close()


def test_R86_records_of_a_row_log_have_their_index_and_their_time_if_these_are_used(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    write(tmp_path / "orders", orders(3))
    source = pipeline.log("orders", Order, url=f"file:{tmp_path}/orders")
    for name in ("new", "old", "at"):
        pipeline.log(name, Order)
    new, old = (source.where(f"_time {than} timestamp '2020-01-01'") for than in "><")
    pipeline.stream(inputs=new, outputs="new", id="copy-new")(lambda orders: orders)
    pipeline.stream(inputs=old, outputs="old", id="copy-old")(lambda orders: orders)
    pipeline.stream(inputs=source, outputs="at", id="place")(
        lambda orders: orders.selectExpr("unix_seconds(_time) AS number", "tea", "_index AS grams")
    )
    finish(pipeline, spark)
    assert len(read(pipeline.directory("new"))) == 3
    assert read(pipeline.directory("old")) == []
    found = read_json(pipeline.directory("at"))
    assert sorted(each["grams"] for each in found) == [0, 1, 2]
    assert all(abs(each["number"] - time.time()) < 600 for each in found)


def test_R84_a_source_of_sparks_own_is_taken_into_a_log_once(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.txt").write_text("one\ntwo\n")
    pipeline.log("words", str)

    @pipeline.source(outputs="words")
    def files(spark: Any) -> DataFrame:
        lines: DataFrame = spark.readStream.text(f"file:{tmp_path}/files")
        return lines.withColumnRenamed("value", "body")

    crash(pipeline, spark, "output")
    finish(pipeline, spark)
    assert sorted(read(pipeline.directory("words"))) == [b"one", b"two"]
