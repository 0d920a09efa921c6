"""R86: a log is read as a DataFrame: columns, ranges, typed bodies, push-down, errors."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pillarbox.log import Log
from pillarbox.spark.file_history import FileHistory
from tests.spark.support import fill, numbered


def read(spark: Any, path: object, **options: Any) -> Any:
    return spark.read.format("pillarbox").options(**options).load(str(path))


def test_R86_every_record_is_a_row_with_its_index_and_time(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "log", numbered(0, 3000), segment_bytes=16384)
    rows = read(spark, f"file:{tmp_path / 'log'}", minPartitions=3).collect()
    assert [row["index"] for row in rows] == list(range(3000))
    assert [bytes(row.body) for row in rows] == numbered(0, 3000)
    assert {row.partition for row in rows} == {0}
    assert all(abs((datetime.now() - row.enqueued_at).days) < 2 for row in rows[:3])  # noqa: DTZ005


def test_R86_start_and_end_by_index_and_time(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "log", numbered(0, 200))
    middle = datetime.now(UTC)
    fill(tmp_path / "log", numbered(200, 500))

    def indices(**options: Any) -> tuple[int, int, int]:
        found = [row["index"] for row in read(spark, tmp_path / "log", **options).collect()]
        return (found[0], found[-1], len(found)) if found else (0, 0, 0)

    assert indices(start=150, end=350) == (150, 349, 200)
    assert indices(start=middle.isoformat()) == (200, 499, 300)
    assert indices(end=middle.isoformat()) == (0, 199, 200)
    assert indices(start="latest") == (0, 0, 0)


def test_R86_a_schema_picks_columns_and_fields_of_json_bodies(spark: Any, tmp_path: Path) -> None:
    bodies = [b'{"id":"a","price":1.5,"tags":["x"]}', b'{"price":2}', b"not json", b'{"id":7}']
    fill(tmp_path / "log", bodies)
    schema = "id STRING, price DOUBLE, tags ARRAY<STRING>, index BIGINT"
    found = spark.read.format("pillarbox").schema(schema).load(str(tmp_path / "log")).collect()
    assert [(row.id, row.price, row.tags, row["index"]) for row in found] == [
        ("a", 1.5, ["x"], 0),
        (None, 2.0, None, 1),
        (None, None, None, 2),
        (None, None, None, 3),
    ]


def test_R86_the_option_schema_types_the_body_as_a_struct_or_as_a_variant(
    spark: Any, tmp_path: Path
) -> None:
    fill(tmp_path / "log", [b'{"id":"a","lines":[{"price":1.5}]}', b'{"id":7}', b"not json"])
    typed = read(spark, tmp_path / "log", schema="id STRING, lines ARRAY<STRUCT<price: DOUBLE>>")
    found = typed.selectExpr("body.id", "body.lines[0].price as price", "index").collect()
    assert [tuple(row) for row in found] == [("a", 1.5, 0), (None, None, 1), (None, None, 2)]
    loose = read(spark, tmp_path / "log", schema="variant")
    fields = [
        "variant_get(body, '$.id', 'string')",
        "variant_get(body, '$.lines[0].price', 'double')",
        "body is null",
    ]
    found = [tuple(row) for row in loose.selectExpr(*fields).collect()]
    assert found == [("a", 1.5, False), ("7", None, False), (None, None, True)]
    reader = spark.read.format("pillarbox").schema("id VARIANT").load(str(tmp_path / "log"))
    with pytest.raises(Exception, match="only the body can be a VARIANT"):
        reader.count()


def test_R86_one_dataframe_may_be_filtered_in_several_ways(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "log", numbered(0, 1000))
    frame = read(spark, tmp_path / "log")
    assert frame.where("index >= 700").union(frame.where("index < 100")).count() == 400


def test_R75_a_log_is_read_while_a_writer_has_it_open(spark: Any, tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=16384) as log:
        log.append_many(numbered(0, 1000))
        assert read(spark, tmp_path / "log").count() == 1000
        log.append_many(numbered(1000, 1001))
        assert read(spark, tmp_path / "log", start=1000).count() == 1


def test_R86_what_retention_removed_is_an_error_unless_it_may_be(
    spark: Any, tmp_path: Path
) -> None:
    fill(tmp_path / "log", numbered(0, 1000), segment_bytes=8192)
    with Log.open(tmp_path / "log", segment_bytes=8192) as log:
        first = log.truncate_before(600)
    assert 0 < first <= 600
    assert read(spark, tmp_path / "log").count() == 1000 - first
    with pytest.raises(Exception, match=r"retention removed .*failOnDataLoss"):
        read(spark, tmp_path / "log", start=5).count()
    assert read(spark, tmp_path / "log", start=5, failOnDataLoss=False).count() == 1000 - first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "yesterday"}, "option start must be"),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger must be"),
        ({"failOnDataLoss": "perhaps"}, "option failOnDataLoss must be"),
        ({"kinds": "sent,eaten"}, "eaten"),
    ],
)
def test_R86_a_wrong_option_is_named(
    spark: Any, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    fill(tmp_path / "log", [b"x"])
    with pytest.raises(Exception, match=message):
        read(spark, tmp_path / "log", **options).count()


def test_R86_a_place_without_a_log_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no log in"):
        read(spark, tmp_path / "nothing")


def test_R86_partitions_cover_every_record_once_whatever_their_size(tmp_path: Path) -> None:
    fill(tmp_path / "log", numbered(0, 5000), batch=7, segment_bytes=32768)
    history = FileHistory(str(tmp_path / "log"))
    for start, end in ((0, 5000), (13, 4999), (2500, 2501), (10, 10)):
        for size in (1, 1000, 20_000, 1 << 30):
            parts = history.partitions(start, end, size)
            pieces = [piece for part in parts for piece in part]
            assert [n for p in pieces for n in range(p.start, p.stop)] == list(range(start, end))
        for size in (1, 1000, 20_000, 1 << 30):
            assert start < history.limit(start, end, size) <= end or start == end
    assert history.limit(0, 5000, 1 << 30) == 5000
    assert history.limit(0, 5000, 1000) < 500
    history.close()
