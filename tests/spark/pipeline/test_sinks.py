"""Sinks: handed over at least once, with a stable hash; the ready-made ones count it once."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from msgspec import Struct
from pyspark.sql import DataFrame

from pillarbox import open_mailbox
from pillarbox.pipeline import Pipeline, PipelineError, sinks
from pillarbox.pipeline.inspection import inspect
from pillarbox.spark.steps import Step
from tests.spark.pipeline.support import crash, finish, maps, write


class Total(Struct):
    tea: str
    grams: int


TOTALS = [Total("Assam", 1), Total("Ceylon", 2), Total("Assam", 3)]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    write(tmp_path / "totals", TOTALS)
    made = Pipeline("p", path=tmp_path / "p")
    made.log("totals", Total, url=f"file:{tmp_path}/totals")
    return made


def test_R84_a_sink_is_given_an_interrupted_step_again_with_the_same_hash(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    seen: list[tuple[str, int]] = []

    @pipeline.sink(inputs="totals")
    def ship(batch: DataFrame, step: Step) -> None:
        seen.append((step.hash, batch.count()))

    crash(pipeline, spark, "output")
    (found,) = inspect(pipeline)
    assert found.restart.action == "again"
    write(tmp_path / "totals", [Total("Keemun", 4)])
    finish(pipeline, spark)
    assert [count for _, count in seen] == [3, 3, 1]
    assert seen[0] == seen[1] != seen[2]
    assert [each["type"] for each in maps(pipeline)] == ["recover"] * 3
    (found,) = inspect(pipeline)
    assert found.restart.action == "go on"


def test_R84_two_inputs_reach_a_sink_as_two_frames(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    write(tmp_path / "words", [b"one", b"two"])
    pipeline.log("words", str, url=f"file:{tmp_path}/words")
    seen: list[tuple[list[int], list[str]]] = []

    @pipeline.sink(inputs=["words", "totals"])
    def ship(words: DataFrame, totals: DataFrame, step: Step) -> None:
        grams = sorted(row.grams for row in totals.collect())
        seen.append((grams, sorted(row.body for row in words.collect())))

    finish(pipeline, spark)
    assert seen == [([1, 2, 3], ["one", "two"])]


def steps_by_hand(batch: DataFrame, sink: Any) -> None:
    """Each of two steps twice, as after a crash."""
    for number in (0, 1):
        step = Step("ship", number, f"{number:064x}")
        for _ in range(2):
            sink(batch, step)


@pytest.fixture
def batch(spark: Any) -> DataFrame:
    rows = [(each.tea, each.grams) for each in TOTALS]
    return spark.createDataFrame(rows, "tea STRING, grams BIGINT")


def test_R84_parquet_and_json_hold_each_step_once(
    batch: DataFrame, spark: Any, tmp_path: Path
) -> None:
    for kind, sink in (("parquet", sinks.parquet), ("json", sinks.json_lines)):
        path = tmp_path / kind
        (path / "_writing-old").mkdir(parents=True)  # what a crash has left
        steps_by_hand(batch, sink(path))
        found = spark.read.format(kind).load(str(path))
        assert Counter(row.tea for row in found.collect()) == {"Assam": 4, "Ceylon": 2}
        assert len({row["hash"] for row in found.collect()}) == 2
        assert [each.name for each in path.iterdir() if each.name.startswith("_")] == []


def rows_of(table: Path) -> list[dict[str, Any]]:
    """As another reader of Delta's sees them, which knows nothing of Spark or of us."""
    return list(DeltaTable(table).to_pyarrow_table().to_pylist())


def test_R84_a_delta_table_holds_each_step_once(batch: DataFrame, tmp_path: Path) -> None:
    when = datetime(2026, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)
    timed = batch.selectExpr("*", f"TIMESTAMP_MICROS({when.timestamp() * 1e6:.0f}) AS sent")
    steps_by_hand(timed, sinks.delta(tmp_path / "table"))
    found = rows_of(tmp_path / "table")
    assert Counter(row["tea"] for row in found) == {"Assam": 4, "Ceylon": 2}
    assert {row["sent"] for row in found} == {when}


def test_R84_a_delta_table_does_not_show_a_step_that_was_interrupted(
    batch: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_step, step = sinks.delta(tmp_path / "table"), Step("ship", 0, "0" * 64)

    def killed(*_: Any, **__: Any) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", killed)
        with pytest.raises(InterruptedError):
            write_step(batch, step)
    assert list((tmp_path / "table").glob("step-0-*/*.parquet")), "then nothing was to be hidden"
    assert rows_of(tmp_path / "table") == []
    write_step(batch, step)
    assert len(rows_of(tmp_path / "table")) == len(TOTALS)
    for columns in (("tea", "grams AS ounces"), ("tea", "CAST(grams AS STRING) AS grams")):
        with pytest.raises(PipelineError, match=r"has no column (ounces|grams) of type"):
            write_step(batch.selectExpr(*columns), replace(step, number=1))
    write_step(batch, replace(step, generation=1))  # after a reset its steps count from 0
    assert len(rows_of(tmp_path / "table")) == 2 * len(TOTALS)


def test_R84_a_database_holds_each_step_once(batch: DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "totals.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE totals (tea TEXT, grams INTEGER)")
    connection.execute("CREATE TABLE newest (tea TEXT PRIMARY KEY, grams INTEGER)")
    connection.commit()
    steps_by_hand(batch, sinks.sqlite(path, "totals"))
    steps_by_hand(batch.where("grams > 1"), sinks.sqlite(path, "newest", key=["tea"]))
    assert connection.execute("SELECT count(*) FROM totals").fetchone() == (6,)
    # The second sink wrote nothing: its steps have the same hashes, and one file keeps them.
    assert connection.execute("SELECT count(*) FROM newest").fetchone() == (0,)
    connection.execute("DELETE FROM pillarbox_steps")
    connection.commit()
    steps_by_hand(batch.where("grams > 1"), sinks.sqlite(path, "newest", key=["tea"]))
    assert connection.execute("SELECT * FROM newest ORDER BY tea").fetchall() == [
        ("Assam", 3),
        ("Ceylon", 2),
    ]
    connection.close()


def test_R84_a_database_step_that_fails_leaves_nothing(batch: DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "totals.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE totals (tea TEXT UNIQUE, grams INTEGER)")
    connection.commit()
    with pytest.raises(sqlite3.IntegrityError):
        sinks.sqlite(path, "totals")(batch, Step("ship", 0, "0" * 64))
    assert connection.execute("SELECT count(*) FROM totals").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM pillarbox_steps").fetchone() == (0,)
    connection.close()


def test_R84_a_mailbox_gets_each_step_once(batch: DataFrame, tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store/totals"
    open_mailbox(url, Total).close()
    steps_by_hand(batch, sinks.mailbox(url, Total))
    box = open_mailbox(url, Total)
    received = [message.body for message in box.receive(max_messages=10)]
    box.close()
    assert Counter((each.tea, each.grams) for each in received) == {
        ("Assam", 1): 2,
        ("Ceylon", 2): 2,
        ("Assam", 3): 2,
    }
