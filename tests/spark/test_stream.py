"""R82, R86: streams from a log and into one: rates, restarts, live writers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pillarbox import spark as on_spark
from pillarbox.log import Log
from tests.spark.support import contents, fill, numbered, stream, to_the_end


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died after our commit and before Spark's own."""
    for path in (checkpoint / "commits").glob(f"*{batch}*"):
        path.unlink()


def test_R82_log_to_log_once_with_limits_restarts_and_a_deleted_commit_file(
    spark: Any, tmp_path: Path
) -> None:
    source, sink, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    fill(source, numbered(0, 1000))
    query = stream(spark, source, sink, checkpoint, processor="copy", maxRowsPerTrigger=400)
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [400, 400, 200]
    assert contents(sink) == numbered(0, 1000)
    forget_commit(checkpoint, 2)
    fill(source, numbered(1000, 1200))
    stream(spark, source, sink, checkpoint, processor="copy")
    assert contents(sink) == numbered(0, 1200)
    commits = list(on_spark.step_commits(str(sink), "copy"))
    assert [each.batch_id for each in commits] == [3, 2, 1, 0]
    assert [(each.first_index, each.end_index) for each in reversed(commits)] == [
        (0, 400),
        (400, 800),
        (800, 1000),
        (1000, 1200),
    ]
    for each in commits:
        assert each.hash == on_spark.read_step(str(checkpoint), each.batch_id, "copy").hash
    last = on_spark.last_commit(str(sink), "copy")
    assert last is not None
    assert json.loads(last.inputs[0].end or "") == {"index": 1200}


def test_R82_control_with_the_check_off_a_replayed_batch_is_doubled(
    spark: Any, tmp_path: Path
) -> None:
    source, sink, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    fill(source, numbered(0, 10))
    for _ in range(2):
        stream(spark, source, sink, checkpoint, processor="copy", strategy="at-least-once")
        forget_commit(checkpoint, 0)
    assert contents(sink) == numbered(0, 10) * 2


def test_R82_a_large_batch_is_one_frame_in_the_order_of_the_input(
    spark: Any, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    records = [b"%07d" % number + b"." * 200 for number in range(6000)]
    fill(source, records)
    stream(spark, source, sink, tmp_path / "cp", processor="copy", minPartitions=3)
    assert contents(sink) == records
    with Log.open(sink, check="all") as log:
        assert log.recovery.clean
        assert [len(frame.records) for frame in log.frames()] == [6000]


def test_R82_inside_foreach_batch_a_write_may_name_its_step(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "in", numbered(0, 50))
    checkpoint = str(tmp_path / "cp")

    def each(frame: Any, batch_id: int) -> None:
        writer = frame.write.format("pillarbox").mode("append").option("processor", "copy")
        writer.option("step", batch_id).save(str(tmp_path / "out"))

    for _ in range(2):
        rows = spark.readStream.format("pillarbox").schema("body BINARY")
        query = rows.load(str(tmp_path / "in")).writeStream.foreachBatch(each)
        query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        to_the_end(query.start)
        forget_commit(tmp_path / "cp", 0)
    assert contents(tmp_path / "out") == numbered(0, 50)


def test_R75_a_stream_follows_a_live_writer(spark: Any, tmp_path: Path) -> None:
    with Log.open(tmp_path / "in", segment_bytes=16384) as log:
        log.append_many(numbered(0, 10))
        rows = spark.readStream.format("pillarbox").schema("body BINARY")
        writer = rows.option("start", "latest").load(str(tmp_path / "in")).writeStream
        writer = writer.format("pillarbox").option("checkpointLocation", str(tmp_path / "cp"))
        query = writer.option("processor", "follow").start(str(tmp_path / "out"))
        try:
            written = 10
            while not query.recentProgress or written < 400:  # past the start, over segments
                log.append_many(numbered(written, written + 10))
                written += 10
            query.processAllAvailable()
        finally:
            query.stop()
    followed = contents(tmp_path / "out")
    assert followed == numbered(written - len(followed), written)
    assert len(followed) > 0


def test_R82_a_lost_checkpoint_is_refused_not_doubled(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "in", numbered(0, 20))
    stream(spark, tmp_path / "in", tmp_path / "out", tmp_path / "cp", processor="copy")
    shutil.rmtree(tmp_path / "cp")
    fill(tmp_path / "in", numbered(20, 30))
    with pytest.raises(Exception, match="do not belong together"):
        stream(spark, tmp_path / "in", tmp_path / "out", tmp_path / "cp", processor="copy")
    assert contents(tmp_path / "out") == numbered(0, 20)


def test_R86_a_map_is_a_json_object(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(1).selectExpr(
        "id", "map('a', 1, 'b', null) as m", "array(map('c', 2)) as l"
    )
    frame.write.format("pillarbox").mode("append").save(str(tmp_path / "out"))
    assert contents(tmp_path / "out") == [b'{"id":0,"m":{"a":1,"b":null},"l":[{"c":2}]}']


def test_R86_a_batch_write_is_one_append_and_once_if_it_names_its_step(
    spark: Any, tmp_path: Path
) -> None:
    for _ in range(2):
        frame = spark.range(5)
        frame.write.format("pillarbox").mode("append").save(str(tmp_path / "plain"))
        named = frame.selectExpr("cast(id as string) as body").write.format("pillarbox")
        named = named.mode("append").option("processor", "job").option("step", "2026-05-01")
        named.save(str(tmp_path / "named"))
    assert sorted(contents(tmp_path / "plain")) == sorted([b'{"id":%d}' % n for n in range(5)] * 2)
    assert sorted(contents(tmp_path / "named")) == [b"%d" % n for n in range(5)]
    with pytest.raises(Exception, match="can only be appended to a log"):
        spark.range(1).write.format("pillarbox").mode("overwrite").save(str(tmp_path / "plain"))
