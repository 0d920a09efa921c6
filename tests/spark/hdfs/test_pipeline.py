"""R83, R131: a pipeline on HDFS with nothing on a file system; its driver is killed with -9.

Spark waits for HDFS as well, which makes each of these a minute.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import pillarbox.spark as ps
from pillarbox.cli import tables
from pillarbox.pipeline.inspection import inspect
from pillarbox.pipeline.maintenance import maintain
from pillarbox.pipeline.rename import rename
from pillarbox.pipeline.reset import reset
from pillarbox.pipeline.running import is_running
from pillarbox.pipeline.status import ends, read_status
from pillarbox.spark.errors import StorageError
from pillarbox.spark.remote_store import check_session
from pillarbox.spark.table import TableLog
from pillarbox.spark.table_files import deltalake
from tests.spark.pipeline.support import crash, finish, hashes, maps
from tests.spark.s3.driver import ROWS_PER_STEP, TOPOLOGIES
from tests.spark.s3.test_kills import ACTS, KILLED, found, run, send
from tests.spark.s3.test_pipeline import counting, numbers, shop

pytestmark = pytest.mark.soak


def test_R131_a_pipeline_lives_on_hdfs_alone(spark: Any, place: str) -> None:
    pipeline = shop(place)
    crash(pipeline, spark, "output")
    finish(pipeline, spark, max_rows=10)
    even = pipeline.directory("even")
    assert even.startswith("hdfs://")
    # Each step is whole, and was done once: seen by Spark, by Delta, and without any of them.
    assert numbers(r.asDict() for r in ps.read(spark, even).collect()) == [*range(0, 20, 2)]
    assert numbers(row for _, row in TableLog(even).rows()) == [*range(0, 20, 2)]
    shipped = deltalake().DeltaTable(f"{place}-shipped").to_pyarrow_table()
    assert numbers(shipped.to_pylist()) == [*range(0, 20, 2)]
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
    finish(pipeline, spark, only=["keep"])
    assert TableLog(even).end_index == 20


def test_R131_a_processor_is_renamed_on_hdfs(spark: Any, place: str) -> None:
    send(counting(place, "old"), 3)
    finish(counting(place, "old"), spark)
    pipeline = counting(place, "new")
    rename(pipeline, "old", "new")
    assert [each.restart.action for each in inspect(pipeline)] == ["go on"]
    send(pipeline, 1)
    finish(pipeline, spark)
    rows = [row for _, row in TableLog(pipeline.directory("out")).rows()]
    assert sorted((row["number"], row["count"]) for row in rows) == [(0, 1), (0, 2), (1, 1), (2, 1)]


@pytest.mark.timeout(600)
def test_R83_a_killed_driver_on_hdfs_goes_on_with_the_same_hashes(spark: Any, place: str) -> None:
    """Killed when its first step is committed, before Spark has taken note of it."""
    pipeline = TOPOLOGIES["chain"](place, "exactly-once")
    send(pipeline, 20)
    assert run(None, "chain", place, "exactly-once", "output", "1") == KILLED
    finish(pipeline, spark, max_rows=ROWS_PER_STEP)
    assert found(pipeline) == Counter(range(20))
    assert all(len(each) == 1 for each in hashes(maps(pipeline)).values())


def test_R131_a_session_that_can_not_reach_hdfs_is_told_what_to_set(spark: Any) -> None:
    with pytest.raises(StorageError, match=r"Spark can't use .*HADOOP_CONF_DIR"):
        check_session(spark, "hdfs://no-such-host.invalid:8020/shop")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_R83_soak_drivers_on_hdfs_are_killed_after_each_act(topology: str, place: str) -> None:
    pipeline = TOPOLOGIES[topology](place, "exactly-once")
    send(pipeline, 40)
    for number, act in enumerate(ACTS):
        assert run(None, topology, place, "exactly-once", act, str(1 + number % 2)) == KILLED
    assert run(None, topology, place, "exactly-once") == 0
    assert found(pipeline) == Counter(range(40))
    assert all(len(each) == 1 for each in hashes(maps(pipeline)).values())


@pytest.mark.timeout(1800)
def test_R83_soak_control_with_the_look_for_the_hash_off_a_step_is_doubled(
    place: str,
) -> None:
    pipeline = TOPOLOGIES["chain"](place, "at-least-once")
    send(pipeline, 20)
    assert run(None, "chain", place, "at-least-once", "output", "1") == KILLED
    assert run(None, "chain", place, "at-least-once") == 0
    assert found(pipeline) == Counter([*range(20), *range(10)])
