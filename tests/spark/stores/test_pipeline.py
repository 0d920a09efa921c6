"""R130, R131: a pipeline with nothing on a file system, seen by its reader and by others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import polars
import pytest

import pillarbox.spark as ps
from pillarbox.cli import tables
from pillarbox.pipeline import Pipeline, PipelineError, sinks
from pillarbox.pipeline.inspection import inspect
from pillarbox.pipeline.maintenance import maintain
from pillarbox.pipeline.rename import rename
from pillarbox.pipeline.reset import reset
from pillarbox.pipeline.running import is_running
from pillarbox.pipeline.status import ends, read_status
from pillarbox.spark.errors import StorageError
from pillarbox.spark.location import is_remote_store
from pillarbox.spark.object_files import ObjectFiles
from pillarbox.spark.remote_store import check_session, delta_options, options_of
from pillarbox.spark.table import TableLog, is_table
from tests.spark.pipeline.driver import Count, Word, words
from tests.spark.pipeline.support import crash, finish, maps
from tests.spark.stores.s3_server import S3
from tests.spark.stores.store import SLOW, Store, on
from tests.spark.stores.test_kills import send


def shop(place: str) -> Pipeline:
    """A generator, a stateless stream and a sink into a table elsewhere."""
    pipeline = Pipeline("shop", path=place)
    for name in ("words", "even"):
        pipeline.log(name, Word)

    @pipeline.source(outputs="words")
    def send() -> Iterator[list[Word]]:
        if TableLog(pipeline.directory("words")).end_index == 0:
            yield words(10)
            yield words(20)[10:]

    pipeline.stream(inputs="words", outputs="even", id="keep")(lambda w: w.where("number % 2 = 0"))
    pipeline.sink(inputs="even", id="ship")(sinks.delta(f"{place}-shipped"))
    return pipeline


def numbers(rows: Any) -> list[int]:
    return sorted(row["number"] for row in rows)


@on("s3", SLOW)
def test_R131_a_pipeline_lives_on_a_store_alone(store_spark: Any, place: str, store: Store) -> None:
    pipeline = shop(place)
    crash(pipeline, store_spark, "output")
    finish(pipeline, store_spark, max_rows=10)
    even = pipeline.directory("even")
    assert is_remote_store(even)
    # Each step is whole, and was done once: seen by Spark, by others, and without any of them.
    assert numbers(r.asDict() for r in ps.read(store_spark, even).collect()) == [*range(0, 20, 2)]
    assert numbers(store.rows(even)) == [*range(0, 20, 2)]
    assert numbers(row for _, row in TableLog(even).rows()) == [*range(0, 20, 2)]
    assert numbers(store.rows(f"{place}-shipped")) == [*range(0, 20, 2)]
    # What people look at.
    assert {each.id: each.restart.action for each in inspect(pipeline)}["keep"] == "go on"
    assert read_status(pipeline.paths.status).processors["keep"].state == "done"
    assert ends(pipeline.graph) == {"words": 20, "even": 10}
    assert not is_running(pipeline.paths)
    assert {each.log for each in maintain(pipeline)} >= {"words", "even", "errors-keep"}
    table = tables.table_of(even)
    assert table is not None
    assert tables.info_of(table)["end_index"] == 10
    # A reset begins a new generation, which writes its records beside the old ones.
    (made,) = reset(pipeline, ["keep"], "earliest")
    assert made.generation == 1
    finish(pipeline, store_spark, only=["keep"])
    assert TableLog(even).end_index == 20


def counting(place: str, processor_id: str) -> Pipeline:
    """A pipeline whose one processor, which keeps state, has this id."""
    pipeline = Pipeline("p", path=place)
    pipeline.log("words", Word, url=f"{place}-words")
    pipeline.log("out", Count)

    @pipeline.stream(inputs="words", outputs="out", mode="update", id=processor_id)
    def count(words: Any) -> Any:
        return words.groupBy("number").count()

    return pipeline


@on("s3", SLOW)
def test_R131_a_processor_is_renamed(
    store_spark: Any, place: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of an object store moves file by file: a rename that broke off is completed."""
    send(counting(place, "old"), 3)
    finish(counting(place, "old"), store_spark)
    pipeline = counting(place, "new")
    if isinstance(store, S3):
        with monkeypatch.context() as patch:
            patch.setattr(ObjectFiles, "move", break_off)
            with pytest.raises(ConnectionError):
                rename(pipeline, "old", "new")
        with pytest.raises(PipelineError, match="rename TARGET old new"):
            finish(pipeline, store_spark)
    rename(pipeline, "old", "new")
    assert [each.restart.action for each in inspect(pipeline)] == ["go on"]
    send(pipeline, 1)
    finish(pipeline, store_spark)
    rows = [row for _, row in TableLog(pipeline.directory("out")).rows()]
    assert sorted((row["number"], row["count"]) for row in rows) == [(0, 1), (0, 2), (1, 1), (2, 1)]


def break_off(files: ObjectFiles, name: str, to: str) -> None:
    """Move some files of a checkpoint; then the connection is gone."""
    for each in files.names(f"{name}/commits"):
        files._store.rename(f"{name}/commits/{each}", f"{to}/commits/{each}")
    raise ConnectionError


@on("s3")
def test_R131_what_another_program_has_written_to_a_table_stops_the_start(
    store_spark: Any, place: str
) -> None:
    pipeline = shop(place)
    finish(pipeline, store_spark, only=["send", "keep"])
    even = pipeline.directory("even")
    other = polars.DataFrame({"number": [99], "text": ["x"]}).with_columns(
        polars.lit(None, polars.Int64).alias("_first"),
        polars.lit(None, polars.Datetime("us", "UTC")).alias("_time"),
    )
    known = delta_options(options_of(even))
    other.write_delta(even, mode="append", storage_options=known)
    before = maps(pipeline)
    with pytest.raises(PipelineError, match="was added to the table by another program"):
        finish(pipeline, store_spark, only=["keep"])
    assert maps(pipeline) == before


@on("s3")
def test_R131_files_that_were_vacuumed_away_stop_the_start(store_spark: Any, place: str) -> None:
    pipeline = shop(place)
    finish(pipeline, store_spark, only=["send"])
    table = TableLog(pipeline.directory("words"))
    for file in table.files():
        table.storage.remove(file.name)
    with pytest.raises(PipelineError, match=r"2 files of the table disappeared from .*words"):
        finish(pipeline, store_spark, only=["keep"])
    assert maps(pipeline) == []
    assert not is_table(pipeline.directory("even"))


@pytest.mark.soak
def test_R131_a_session_that_can_not_reach_hdfs_is_told_what_to_set(spark: Any) -> None:
    with pytest.raises(StorageError, match=r"Spark can't use .*HADOOP_CONF_DIR"):
        check_session(spark, "hdfs://no-such-host.invalid:8020/shop")


def test_R131_a_session_without_jars_is_told_which(spark: Any) -> None:
    with pytest.raises(StorageError, match="it has no jars for such URLs"):
        check_session(spark, "gs://bucket/shop")
    assert "hadoop-aws" in json.dumps(ps.remote_store.S3_PACKAGES)
