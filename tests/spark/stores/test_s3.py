"""R131: what is S3's own: object names, endpoints and credentials; and what needs many files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pillarbox.cli import run as command
from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.remote_backing import (
    Entry,
    EntryLog,
    RemoteBackingLog,
    read_entries,
    running_token,
)
from pillarbox.pipeline.running import acquire_run
from pillarbox.spark.errors import FencedError, StorageError
from pillarbox.spark.location import location_of
from pillarbox.spark.object_files import ObjectFiles
from pillarbox.spark.remote_store import options_of
from pillarbox.spark.table import TableLog
from tests.spark.stores.s3_server import S3, running
from tests.spark.stores.test_storage import FIRST_COMMIT, STEP, file_of, numbers, recovery, table_at


@pytest.fixture
def store(s3: S3) -> S3:
    return s3


def test_R131_urls_of_object_stores_are_locations(tmp_path: Path) -> None:
    assert location_of("s3://bucket/shop/") == "s3a://bucket/shop"
    assert location_of("abfss://box@account.example/shop") == "abfss://box@account.example/shop"
    assert location_of(f"file:{tmp_path}") == str(tmp_path)
    assert location_of("redis://here/0") is None


def prefix_of(place: str) -> str:
    return place.partition("://")[2].partition("/")[2]


def test_R131_maps_are_restated_and_old_entries_go(place: str, s3: S3) -> None:
    with acquire_run(Paths(place)) as held:
        held.claim()
        backing = held.backing()
        for step in range(250):
            backing.write(recovery(step))
    assert len(s3.objects(prefix_of(place))) < 120
    again = RemoteBackingLog(f"{place}/backing", "again")
    assert again.last("p").recovery == recovery(249)
    assert read_entries(f"{place}/backing")[-1] == recovery(249)


@pytest.mark.parametrize("when", ["while Spark starts", "while it claims"])
def test_R131_a_claim_is_never_made_where_nobody_looks(
    place: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier run has restated its maps since, and the next number of then is free again."""
    paths, create, left = Paths(place), EntryLog.create, [1]
    earlier = acquire_run(paths)
    earlier.claim()
    first = earlier.backing()
    first.write(recovery(0))
    later = acquire_run(paths)

    def write_many() -> None:
        for step in range(left.pop(), 250):
            first.write(recovery(step))

    def create_late(self: EntryLog, entry: Entry) -> bool:
        if entry.run == later.token and left:
            write_many()
        return create(self, entry)

    if when == "while Spark starts":
        write_many()
    monkeypatch.setattr(EntryLog, "create", create_late)
    later.claim()
    assert later.backing().last("p").recovery == recovery(249)
    assert running_token(paths.backing) == later.token
    with pytest.raises(FencedError, match="a later run has taken over"):
        first.write(recovery(250))
    later.backing().write(recovery(250))
    assert read_entries(paths.backing)[-1] == recovery(250)


def test_R131_maps_are_read_whole_while_they_are_restated(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, read = acquire_run(Paths(place)), ObjectFiles.read
    held.claim()
    held.backing().write(recovery(0))
    left = [1]

    def read_late(self: ObjectFiles, name: str) -> bytes:
        for step in range(left.pop(), 150) if left else ():
            held.backing().write(recovery(step))
        return read(self, name)

    monkeypatch.setattr(ObjectFiles, "read", read_late)
    assert read_entries(f"{place}/backing")[-1] == recovery(149)


def test_R83_control_without_the_look_rows_are_committed_a_second_time(
    place: str, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_at(place)
    monkeypatch.setattr(TableLog, "_was_committed", lambda *_: False)
    with s3.losing(place, FIRST_COMMIT):
        table = TableLog(place)
        assert table.commit([file_of(table, 1, 2)], STEP, check=False)
    assert numbers(place) == [(2, 1), (3, 2)]  # a reader of the first two would see them again


# -- what is wrong is said before anything is written ----------------------------------------------


def test_R131_a_bucket_that_is_not_there_is_named(s3: S3) -> None:
    url = "s3a://no-such-bucket/shop"
    with pytest.raises(StorageError, match="no such bucket; create it first"):
        ObjectFiles(url, options_of(url)).check()
    pipeline = Pipeline("shop", path=url)
    pipeline.log("words", bytes)
    pipeline.source(outputs="words")(lambda: iter(()))
    with pytest.raises(StorageError, match="no-such-bucket"):
        pipeline.run()


def test_R131_credentials_that_are_refused_are_named(s3: S3, monkeypatch: Any) -> None:
    with running(INITIAL_NO_AUTH_ACTION_COUNT="1") as strict:  # from then on it asks who it is
        monkeypatch.setenv("AWS_ENDPOINT_URL", strict.endpoint)
        url = strict.url("shop")
        with pytest.raises(StorageError, match=r"refused the credentials.*AWS_SECRET_ACCESS_KEY"):
            ObjectFiles(url, options_of(url)).check()
        pipeline = Pipeline("shop", path=url)
        with pytest.raises(StorageError, match="refused the credentials"):
            pipeline.run()


def test_R131_a_server_that_does_not_answer_is_named(
    place: str, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"can't be reached.*AWS_ENDPOINT_URL"):
        ObjectFiles(place, options_of(place)).check()


def test_R131_what_may_not_be_written_is_said_in_a_line(
    place: str, s3: S3, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By commands that only look, too."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert command(["log", "info", place]) == 1
    assert "the store can't be reached" in capsys.readouterr().err
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert command(["log", "info", "s3a://no-such-bucket/shop"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
