"""Logs of pipelines are Delta tables: what others see, what fences, what types may do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import pillarbox.spark as ps
from pillarbox.cli import run as command
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.graph import LogRef
from pillarbox.pipeline.outputs import Outputs
from pillarbox.pipeline.query import Query
from pillarbox.pipeline.step_result import OutputRows, StepResult
from pillarbox.pipeline.tables import prepare
from pillarbox.spark.table import TableLog
from tests.spark.pipeline.support import finish, read_json, write


class Order(Struct):
    number: int
    tea: str


ORDERS = [Order(n, f"tea {n % 3}") for n in range(10)]


def copying(path: Path, body_type: Any = Order) -> Pipeline:
    pipeline = Pipeline("shop", path=path / "shop")
    pipeline.log("orders", body_type, url=f"file:{path}/orders")
    pipeline.log("copy", body_type)
    pipeline.log("again", body_type)
    pipeline.stream(inputs="orders", outputs="copy", id="first")(lambda orders: orders)
    pipeline.stream(inputs="copy", outputs="again", id="second")(lambda orders: orders)
    return pipeline


@pytest.fixture
def table(tmp_path: Path, spark: Any) -> TableLog:
    path = str(tmp_path / "table")
    prepare(path, LogRef("table", path, Order))
    return TableLog(path)


def rows(spark: Any, *numbers: int) -> DataFrame:
    pairs = [(n, "tea") for n in numbers]
    made: DataFrame = spark.createDataFrame(pairs, "number LONG, tea STRING")
    return made.coalesce(1)


def step(number: int, start: int, end: int, writer: str = "s") -> ps.Step:
    offsets = (ps.Input(str(start), str(end)),)
    return ps.Step(writer, number, f"{writer} {start} {end}", offsets=offsets)


def commit(table: TableLog, frame: DataFrame, done: ps.Step, epoch: int | None = None) -> None:
    outputs = Outputs({"out": table.path}, table.path)
    epochs = {} if epoch is None else {"out": epoch}
    outputs.write(StepResult({"out": OutputRows(frame)}), done, epochs, check=True)


def test_R82_a_step_is_entered_once_and_rows_are_numbered(table: TableLog, spark: Any) -> None:
    for _ in range(2):
        commit(table, rows(spark, 1, 2), step(0, 0, 2))
    commit(table, rows(spark, 7), step(0, 0, 1, "other"))
    commit(table, rows(spark, 3), step(1, 2, 3))
    commit(table, rows(spark), step(2, 3, 4))
    table.refresh()
    found = [(index, row["number"]) for index, row in table.rows()]
    assert found == [(0, 1), (1, 2), (2, 7), (3, 3)]
    assert table.end_index == 4
    assert [index for index, _ in table.rows(1, 3)] == [1, 2]
    assert table.holds(step(2, 3, 4))
    assert table.holds(step(0, 0, 2))
    assert table.last_steps()["s"] == {"step": "2", "hash": "s 3 4"}


def test_R82_control_without_the_look_for_the_hash_a_step_is_doubled(
    table: TableLog, spark: Any
) -> None:
    outputs = Outputs({"out": table.path}, table.path)
    for _ in range(2):
        made = StepResult({"out": OutputRows(rows(spark, 1))})
        outputs.write(made, step(0, 0, 1), {}, check=False)
    table.refresh()
    assert table.end_index == 2


def test_R82_a_checkpoint_of_another_history_is_refused(table: TableLog, spark: Any) -> None:
    commit(table, rows(spark, 1, 2), step(0, 0, 2))
    for odd in (step(0, 0, 1), step(1, 1, 3)):
        with pytest.raises(ps.DivergedError, match="do not belong together"):
            commit(table, rows(spark, 9), odd)
    commit(table, rows(spark, 9), step(5, 40, 50))  # after a gap nothing can be said
    assert TableLog(table.path).end_index == 3


def test_R83_a_run_that_was_replaced_commits_nothing(table: TableLog, spark: Any) -> None:
    old = table.claim("s")
    commit(table, rows(spark, 1), step(0, 0, 1), old)
    new = TableLog(table.path).claim("s")
    assert new == old + 1
    with pytest.raises(ps.FencedError, match="a later run of 's' has taken over"):
        commit(table, rows(spark, 2), step(1, 1, 2), old)
    commit(table, rows(spark, 2), step(1, 1, 2), new)
    assert TableLog(table.path).end_index == 2


@pytest.fixture
def outputs(table: TableLog) -> Callable[[], Outputs]:
    errors = f"{table.path}-errors"
    prepare(errors, LogRef("errors", errors, Order))
    return lambda: Outputs({"out": table.path}, errors)


@pytest.mark.parametrize("check", [True, False], ids=["exactly-once", "others"])
def test_R131_a_run_that_was_replaced_is_fenced_with_any_strategy(
    outputs: Callable[[], Outputs], spark: Any, check: bool
) -> None:
    earlier, later = outputs(), outputs()
    made = StepResult({"out": OutputRows(rows(spark, 1))})
    epochs = earlier.take_over("s")
    later.take_over("s")
    with pytest.raises(ps.FencedError, match="a later run of 's' has taken over"):
        earlier.write(made, step(0, 0, 1), epochs, check=check)
    with pytest.raises(ps.FencedError):
        earlier.write_failures([rows(spark, 1)], step(0, 0, 1), epochs, check=check)


def test_R131_what_an_earlier_run_wrote_stays_until_it_can_not_enter_it(
    outputs: Callable[[], Outputs], spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits in the last moment in which it can: what the table names is there then."""
    earlier, later, claim = outputs(), outputs(), TableLog.claim
    epochs = earlier.take_over("s")
    files = earlier._written("out", rows(spark, 1), step(0, 0, 1))
    left = earlier._written("out", rows(spark, 2), step(1, 1, 2))

    def claim_late(self: TableLog, writer: str) -> int:
        earlier.table("out").commit(files, step(0, 0, 1), epochs["out"])
        return claim(self, writer)

    monkeypatch.setattr(TableLog, "claim", claim_late)
    later.take_over("s")
    table = later.table("out")
    table.check(0)
    assert table.end_index == 1
    assert table.storage.missing([each.name for each in left])  # nobody will enter these


def test_R82_two_writers_at_once_never_number_rows_alike(table: TableLog, spark: Any) -> None:
    one, other = TableLog(table.path), TableLog(table.path)
    commit(one, rows(spark, 1), step(0, 0, 1, "one"))
    outputs = Outputs({"out": other.path}, other.path)
    files = outputs._written("out", rows(spark, 2), step(0, 0, 1, "other"))
    assert other.end_index == 0  # it has not seen what the other one wrote
    assert other.commit(files, step(0, 0, 1, "other"))
    assert [index for index, _ in TableLog(table.path).rows()] == [0, 1]


def test_R82_a_commit_whose_answer_was_lost_is_recognised(
    table: TableLog, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = DeltaTable.create_write_transaction

    def lost(*arguments: Any, **options: Any) -> None:
        enter(*arguments, **options)
        raise CommitFailedError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", lost)
        commit(table, rows(spark, 1), step(0, 0, 1))
    assert TableLog(table.path).end_index == 1


def test_R86_others_read_a_log_as_the_delta_table_that_it_is(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "orders", ORDERS)
    pipeline = copying(tmp_path)
    finish(pipeline, spark, max_rows=4)
    place = pipeline.directory("again")
    seen = DeltaTable(place).to_pyarrow_table().to_pylist()
    wanted = [(order.number, order.tea) for order in ORDERS]
    assert sorted((row["number"], row["tea"]) for row in seen) == wanted
    frame = ps.read(spark, place)
    assert frame.columns == ["number", "tea", "_index", "_time"]
    by_index = {row["_index"]: row.number for row in frame.collect()}
    assert by_index == {index: row["number"] for index, row in TableLog(place).rows()}
    assert sorted(by_index) == list(range(10))
    assert ps.read(spark, place, start=3, end=7).count() == 4
    by_source = spark.read.format("pillarbox").load(place)
    assert {row["_index"]: row.number for row in by_source.collect()} == by_index
    assert {row["_time"] for row in by_source.collect()} == {r["_time"] for r in frame.collect()}
    with pytest.raises(Exception, match="a table of a pipeline; only the pipeline may write to it"):
        rows(spark, 1).write.format("pillarbox").mode("append").save(place)


def test_R110_the_command_line_looks_into_a_log_without_spark(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "orders", ORDERS)
    pipeline = copying(tmp_path)
    finish(pipeline, spark)
    place = pipeline.directory("copy")
    assert command(["log", "cat", place, "--from", "8"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"index": n, "number": n, "tea": f"tea {n % 3}"} for n in (8, 9)]
    assert command(["log", "info", place, "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert (known["end_index"], known["columns"]) == (10, {"number": "int64", "tea": "string"})
    assert known["steps"]["first"]["step"] == "0"
    assert command(["log", "info", place]) == 0
    assert "end_index" in capsys.readouterr().out


def test_R80_a_field_with_a_default_may_be_added(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "orders", ORDERS)
    finish(copying(tmp_path), spark)
    larger = msgspec.defstruct("Larger", [("number", int), ("tea", str), ("grams", int, 100)])
    write(tmp_path / "orders", [larger(99, "new", 5)])
    pipeline = copying(tmp_path, larger)
    finish(pipeline, spark)
    assert [row["grams"] for row in read_json(pipeline.directory("again"))[10:]] == [5]
    grams: list[int] = []

    @pipeline.sink(inputs="copy")
    def see(batch: DataFrame, _: Any) -> None:
        grams.extend(row.grams for row in batch.collect())

    finish(pipeline, spark)
    assert sorted(grams) == [5, *[100] * 10]
    assert TableLog(pipeline.directory("copy")).added_columns == {"grams"}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("number", int)], "has a column tea of type string, but the type of its bodies has no"),
        ([("number", str), ("tea", str)], "number of type bigint, .* has string there"),
        ([("number", int), ("tea", Any)], "tea of type string, .* has variant there"),
        ([("number", int), ("tea", str), ("grams", int)], "new field grams.*give it a default"),
    ],
    ids=["removed", "retyped", "retyped to what is kept as text too", "required"],
)
def test_R80_any_other_change_of_a_type_stops_the_start(
    tmp_path: Path, spark: Any, fields: list[Any], problem: str
) -> None:
    path = str(tmp_path / "table")
    prepare(path, LogRef("table", path, Order))
    with pytest.raises(PipelineError, match=problem):
        prepare(path, LogRef("table", path, msgspec.defstruct("Changed", fields)))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("number", int), ("leaf", str)], "field leaf of type string, .* has no such column"),
        ([("number", str)], "field number of type string, .* has it as bigint"),
    ],
    ids=["renamed", "retyped"],
)
def test_R133_a_type_that_its_table_does_not_have_is_never_read_as_null(
    tmp_path: Path, spark: Any, fields: list[Any], problem: str
) -> None:
    """The log of another pipeline, or of a writer that does not run."""
    path = str(tmp_path / "table")
    prepare(path, LogRef("table", path, Order))
    kind = msgspec.defstruct("Other", fields)
    pipeline = Pipeline("reader", path=tmp_path / "reader")
    pipeline.log("orders", kind, url=f"file:{path}")
    pipeline.log("copy", kind)
    pipeline.stream(inputs="orders", outputs="copy", id="s")(lambda orders: orders)
    with pytest.raises(PipelineError, match=problem):
        pipeline.run(spark, available_now=True)
    assert not (tmp_path / "reader").exists()


def test_R133_columns_that_nobody_asks_for_may_be_there(tmp_path: Path, spark: Any) -> None:
    path = str(tmp_path / "table")
    prepare(path, LogRef("table", path, Order))
    TableLog(path).append([{"number": 1, "tea": "Assam"}], {})
    pipeline = Pipeline("reader", path=tmp_path / "reader")
    kind = msgspec.defstruct("Some", [("number", int)])
    pipeline.log("orders", kind, url=f"file:{path}")
    pipeline.log("copy", kind)
    pipeline.stream(inputs="orders", outputs="copy", id="s")(lambda orders: orders)
    finish(pipeline, spark)
    assert read_json(pipeline.directory("copy")) == [{"number": 1}]


CHANGED = """
import msgspec
from pillarbox.pipeline import Pipeline

Order = msgspec.defstruct("Order", [("number", int)])
pipeline = Pipeline("shop", path="./shop")
pipeline.log("orders", Order, url="file:./orders")
pipeline.log("copy", Order)
pipeline.stream(inputs="orders", outputs="copy", id="first")(lambda orders: orders)
"""


def test_R133_the_command_tells_a_changed_type_before_a_run(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "orders", ORDERS)
    (tmp_path / "changed_shop.py").write_text(CHANGED)
    assert command(["pipeline", "check", "changed_shop:pipeline"]) == 0
    assert "shop can be run" in capsys.readouterr().out
    path = f"{tmp_path}/shop/logs/copy"
    prepare(path, LogRef("copy", path, Order))
    before = TableLog(path).version
    monkeypatch.setattr(StructType, "fromDDL", None)  # which needs a Spark that runs
    assert command(["pipeline", "check", "changed_shop:pipeline"]) == 1
    said = capsys.readouterr().err
    assert "has a column tea of type string, but the type of its bodies has no such field" in said
    assert said.count("\n") == 1
    assert TableLog(path).version == before


def test_R80_a_table_that_somebody_else_wrote_to_is_an_error(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "orders", ORDERS)
    pipeline = copying(tmp_path)
    finish(pipeline, spark, only=["first"])
    place = pipeline.directory("copy")
    theirs = DeltaTable(place).to_pyarrow_table().slice(0, 1).to_pylist()[0] | {"_first": None}
    schema = DeltaTable(place).to_pyarrow_table().schema
    write_deltalake(place, pa.Table.from_pylist([theirs], schema), mode="append")
    with pytest.raises(PipelineError, match="Only the pipeline may write its logs"):
        finish(pipeline, spark, only=["second"], retries=0)


def test_R80_an_output_of_an_earlier_version_is_not_taken_for_a_table(
    tmp_path: Path, spark: Any
) -> None:
    write(tmp_path / "orders", ORDERS)
    pipeline = copying(tmp_path)
    Path(pipeline.directory("copy")).parent.mkdir(parents=True)
    write(pipeline.directory("copy"), ORDERS)
    with pytest.raises(PipelineError, match=r"holds a row log.*Move the directory away"):
        finish(pipeline, spark)


class Anything(Struct):
    name: str
    value: Any
    parts: list[Any] = []


def same(body: Anything) -> Anything:
    return body


def test_R80_values_of_any_type_pass_through_a_table(tmp_path: Path, spark: Any) -> None:
    one = Anything("one", {"a": [1, 2.5, None]}, [1, "x"])
    write(tmp_path / "any", [one, Anything("two", 7), Anything("n", "t")])
    pipeline = Pipeline("p", path=tmp_path / "p")
    pipeline.log("any", Anything, url=f"file:{tmp_path}/any")
    for name, kind in (("copy", Anything), ("loose", Any), ("out", Anything)):
        pipeline.log(name, kind)
    pipeline.stream(inputs="any", outputs="copy", id="first")(lambda rows: rows)
    pipeline.stream(inputs="copy", outputs="loose", id="second")(
        lambda rows: rows.select("name", F.length("name").alias("length"))
    )
    pipeline.stream(inputs="copy", outputs="out", each=True, id="third")(same)
    finish(pipeline, spark)
    found = {row["name"]: json.loads(row["value"]) for row in read_json(pipeline.directory("out"))}
    assert found == {"one": {"a": [1, 2.5, None]}, "two": 7, "n": "t"}
    loose = [json.loads(row["body"]) for _, row in TableLog(pipeline.directory("loose")).rows()]
    assert {row["name"]: row["length"] for row in loose} == {"one": 3, "two": 3, "n": 1}


class Brief(Struct, omit_defaults=True):
    """In JSON it has no field whose value is the default."""

    number: int
    grams: int = 100


def brief(order: Order) -> Brief:
    return Brief(order.number, 100 if order.number else 5)


def test_R80_defaults_that_json_leaves_out_are_in_the_table(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "orders", ORDERS[:2])
    pipeline = Pipeline("p", path=tmp_path / "p")
    pipeline.log("orders", Order, url=f"file:{tmp_path}/orders")
    pipeline.log("brief", Brief)
    pipeline.stream(inputs="orders", outputs="brief", each=True, id="s")(brief)
    finish(pipeline, spark)
    found = read_json(pipeline.directory("brief"))
    assert sorted(each["grams"] for each in found) == [5, 100]


@pytest.mark.parametrize("max_rows", [3, 4, None])
def test_R82_a_batch_job_and_a_query_come_to_the_same(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, max_rows: int | None
) -> None:
    write(tmp_path / "orders", [*ORDERS, b"junk", b'{"number": 1}'])
    made, failed = [], []
    for name, native in (("native", True), ("query", False)):
        monkeypatch.setattr(Query, "native", native)
        pipeline = copying(tmp_path / name)
        pipeline.graph.logs[0] = LogRef("orders", f"file:{tmp_path}/orders", Order)
        finish(pipeline, spark, max_rows=max_rows)
        made.append(sorted(read_json(pipeline.directory("again")), key=lambda row: row["number"]))
        errors = TableLog(pipeline.errors_directory("first")).rows()
        failed.append(sorted((row["index"], row["cause"], row["body"]) for _, row in errors))
    assert made[0] == made[1]
    assert len(made[0]) == len(ORDERS)
    assert failed[0] == failed[1]
    assert [index for index, *_ in failed[0]] == [10, 11]


class Leaf(Struct):
    tea: str
    grams: int = 100


class Basket(Struct):
    number: int
    first: Leaf
    leaves: list[Leaf] = []
    prices: dict[str, float] = {}


def weigh(basket: Basket) -> Order:
    leaves = [basket.first, *basket.leaves]
    return Order(sum(leaf.grams for leaf in leaves), ",".join(leaf.tea for leaf in leaves))


@pytest.mark.parametrize("source", ["baskets", "copy"], ids=["JSON", "stored"])
def test_R80_a_function_of_single_bodies_gets_the_defaults(
    tmp_path: Path, spark: Any, source: str
) -> None:
    write(
        tmp_path / "baskets",
        [
            b'{"number": 1, "first": {"tea": "a"}}',
            b'{"number": 2, "first": {"tea": "b", "grams": 5}, "leaves": [{"tea": "c"}]}',
        ],
    )
    pipeline = Pipeline("p", path=tmp_path / "p")
    pipeline.log("baskets", Basket, url=f"file:{tmp_path}/baskets")
    pipeline.log("copy", Basket)
    pipeline.log("weights", Order)
    pipeline.stream(inputs="baskets", outputs="copy", id="copy")(lambda rows: rows)
    pipeline.stream(inputs=source, outputs="weights", each=True, id="weigh")(weigh)
    finish(pipeline, spark)
    stored = read_json(pipeline.directory("copy"))
    assert (stored[0]["leaves"], stored[0]["prices"]) == ([], {})
    found = sorted((row["number"], row["tea"]) for row in read_json(pipeline.directory("weights")))
    assert found == [(100, "a"), (105, "b,c")]
    assert not list(TableLog(pipeline.errors_directory("weigh")).rows())
