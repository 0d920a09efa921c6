"""R131: what a pipeline keeps on an object store, without Spark: files, maps, claims, commits."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from pillarbox.cli import run as command
from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.inspection import inspect
from pillarbox.pipeline.maintenance import compact
from pillarbox.pipeline.maps import Recovery
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.remote_backing import (
    Entry,
    EntryLog,
    RemoteBackingLog,
    read_entries,
    running_token,
)
from pillarbox.pipeline.reset import reset
from pillarbox.pipeline.running import StoppingError, acquire_run, batch_for_run, is_running
from pillarbox.pipeline.status import StatusFile, first_status, read_status
from pillarbox.spark.errors import FencedError, StorageError
from pillarbox.spark.files import Files, files_at
from pillarbox.spark.location import location_of
from pillarbox.spark.object_files import ObjectFiles
from pillarbox.spark.remote_store import options_of
from pillarbox.spark.steps import Input, Step
from pillarbox.spark.table import TableLog, create_table
from pillarbox.spark.table_files import NewFile
from tests.spark.s3.lossy import lossy
from tests.spark.s3.server import Server, running

FIELDS = [{"name": "number", "type": "long", "nullable": True, "metadata": {}}]
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=["directory", "object store"])
def files(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> Files:
    return files_at(str(tmp_path) if request.param == "directory" else place)


def test_R131_a_file_is_created_once_and_replaced_whole(files: Files) -> None:
    assert files.create("claim", b"one")
    assert not files.create("claim", b"two")
    assert files.read("claim") == b"one"
    files.write("claim", b"three")
    assert (files.read("claim"), files.size("claim")) == (b"three", 5)
    with files.writing("rows.parquet") as sink:
        parquet.write_table(pa.table({"a": [1, 2]}), sink)
    assert parquet.read_table(files.open("rows.parquet"))["a"].to_pylist() == [1, 2]
    assert files.names() == ["claim", "rows.parquet"]
    files.remove("claim")
    files.remove("claim")
    with pytest.raises(FileNotFoundError):
        files.read("claim")
    assert files.names("nothing") == []


def test_R131_urls_of_object_stores_are_locations(tmp_path: Path) -> None:
    assert location_of("s3://bucket/shop/") == "s3a://bucket/shop"
    assert location_of("abfss://box@account.example/shop") == "abfss://box@account.example/shop"
    assert location_of(f"file:{tmp_path}") == str(tmp_path)
    assert location_of("redis://here/0") is None


def prefix_of(place: str) -> str:
    return place.partition("://")[2].partition("/")[2]


def recovery(step: int) -> Recovery:
    return Recovery(processor="p", step=step, inputs={"words": (step, step + 1)}, time=NOW)


def test_R131_maps_are_restated_and_old_entries_go(place: str, s3: Server) -> None:
    with acquire_run(Paths(place)) as held:
        held.claim()
        backing = held.backing()
        for step in range(250):
            backing.write(recovery(step))
    assert len(s3.objects(prefix_of(place))) < 120
    again = RemoteBackingLog(f"{place}/backing", "again")
    assert again.last("p").recovery == recovery(249)
    assert read_entries(f"{place}/backing")[-1] == recovery(249)


@pytest.mark.parametrize("steps", [1, 250])
def test_R131_the_later_run_claims_and_the_earlier_can_write_nothing_more(
    place: str, steps: int
) -> None:
    """Also when the entries are gone among which the earlier one would write."""
    paths = Paths(place)
    earlier, later = acquire_run(paths), acquire_run(paths)
    earlier.claim()
    first = earlier.backing()
    first.write(recovery(0))
    later.claim()
    for step in range(steps):
        later.backing().write(recovery(1 + step))
    with pytest.raises(FencedError, match="a later run has taken over"):
        first.write(recovery(1))
    with pytest.raises(FencedError):
        first.write(recovery(1))
    earlier.close()
    assert running_token(paths.backing) == later.token
    assert is_running(paths)
    assert later.backing().last("p").recovery == recovery(steps)
    later.close()
    assert not is_running(paths)


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


def test_R131_a_reset_keeps_a_run_that_was_displaced_from_committing(place: str) -> None:
    pipeline = Pipeline("shop", path=place)
    for name in ("words", "out"):
        pipeline.log(name, int)
        table_at(pipeline.directory(name))
    pipeline.stream(inputs="words", outputs="out", id="s")(lambda words: words)
    earlier = TableLog(pipeline.directory("out"))
    epoch, file = earlier.claim("s"), file_of(earlier, 1, 2)
    reset(pipeline, ["s"], "earliest")
    with pytest.raises(FencedError):
        earlier.commit([file], STEP, epoch)


def test_R131_control_entries_without_a_claim_would_be_taken_for_ones_own(place: str) -> None:
    earlier, other = (RemoteBackingLog(f"{place}/backing", run) for run in ("earlier", "other"))
    earlier.claim()
    other.write(recovery(0))
    earlier.write(recovery(1))
    assert [each.step for each in read_entries(f"{place}/backing")] == [0, 1]  # type: ignore[union-attr]


def test_R131_a_process_takes_batches_only_for_the_run_that_holds_the_pipeline(place: str) -> None:
    paths = Paths(place)
    held = acquire_run(paths)
    held.claim()
    with batch_for_run(paths, held.token):
        RemoteBackingLog(paths.backing, held.token, joined=True).write(recovery(0))
    held.stop_batches()
    with pytest.raises(StoppingError), batch_for_run(paths, held.token):
        raise AssertionError


def test_R131_a_map_whose_confirmation_was_lost_is_recognised(
    place: str, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lossy(s3.endpoint, "/backing/", 2) as (endpoint, lost):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with acquire_run(Paths(place)) as held:
            held.claim()
            held.backing().write(recovery(0))
            held.backing().write(recovery(1))
        assert lost() == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert read_entries(f"{place}/backing") == [recovery(0), recovery(1)]


def table_at(url: str) -> TableLog:
    create_table(url, json.dumps({"type": "struct", "fields": FIELDS}), columns=["number"])
    return TableLog(url)


def file_of(table: TableLog, *numbers: int) -> NewFile:
    name = f"{'-'.join(map(str, numbers))}.parquet"
    with table.storage.writing(name) as sink:
        parquet.write_table(pa.table({"number": numbers}, table.schema), sink)
    return NewFile(name, table.storage.size(name), len(numbers))


def numbers(url: str) -> list[tuple[int, Any]]:
    return [(index, row["number"]) for index, row in TableLog(url).rows()]


STEP = Step("s", 0, "hash 0", offsets=(Input(None, "2"),))


@pytest.mark.parametrize("count", [20])
def test_R131_a_typed_log_on_a_remote_store(place: str, count: int) -> None:
    table = table_at(place)
    for number in range(count):
        table.append([{"number": number}], {"mark": number})
    assert compact(table, count) == count
    assert numbers(place) == [(n, n) for n in range(count)]
    assert (len(table.files()), table.mark("mark")) == (1, count - 1)
    assert table.vacuum(0) == count
    assert numbers(place) == [(n, n) for n in range(count)]


def test_R131_an_earlier_run_can_commit_nothing_more(place: str) -> None:
    earlier, later = table_at(place), TableLog(place)
    epoch = earlier.claim("s")
    later.claim("s")
    for check in (True, False):
        with pytest.raises(FencedError, match="a later run of 's'"):
            earlier.commit([file_of(earlier, 1, 2)], STEP, epoch, check=check)
    assert later.commit([file_of(later, 1, 2)], STEP, epoch + 1)
    assert numbers(place) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_R83_a_commit_whose_answer_was_lost_is_recognised(
    place: str, s3: Server, monkeypatch: pytest.MonkeyPatch, exactly_once: bool
) -> None:
    table_at(place)
    with lossy(s3.endpoint, "_delta_log/00000000000000000001.json") as (endpoint, lost):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        table = TableLog(place)
        assert table.commit([file_of(table, 1, 2)], STEP, check=exactly_once)
        assert lost() == 1
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert numbers(place) == [(0, 1), (1, 2)]


def test_R83_control_without_the_look_rows_are_committed_a_second_time(
    place: str, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_at(place)
    monkeypatch.setattr(TableLog, "_was_entered", lambda *_: False)
    with lossy(s3.endpoint, "_delta_log/00000000000000000001.json") as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        table = TableLog(place)
        assert table.commit([file_of(table, 1, 2)], STEP, check=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert numbers(place) == [(2, 1), (3, 2)]  # a reader of the first two would see them again


def test_R88_the_status_is_kept_on_the_remote_store(place: str) -> None:
    pipeline = Pipeline("shop", path=place)
    file = StatusFile(pipeline.paths.status, first_status("shop", "local", pipeline.graph, ()))
    file.status.master = "other"
    file.save(soon=True)
    assert read_status(pipeline.paths.status).master == "local"
    file.save()
    assert read_status(pipeline.paths.status).master == "other"


# -- what is wrong is said before anything is written ----------------------------------------------


def test_R131_a_bucket_that_is_not_there_is_named(s3: Server) -> None:
    url = "s3a://no-such-bucket/shop"
    with pytest.raises(StorageError, match="no such bucket; create it first"):
        ObjectFiles(url, options_of(url)).check()
    pipeline = Pipeline("shop", path=url)
    pipeline.log("words", bytes)
    pipeline.source(outputs="words")(lambda: iter(()))
    with pytest.raises(StorageError, match="no-such-bucket"):
        pipeline.run()


def test_R131_credentials_that_are_refused_are_named(s3: Server, monkeypatch: Any) -> None:
    with running(INITIAL_NO_AUTH_ACTION_COUNT="1") as strict:  # from then on it asks who it is
        monkeypatch.setenv("AWS_ENDPOINT_URL", strict.endpoint)
        url = strict.url("shop")
        with pytest.raises(StorageError, match=r"refused the credentials.*AWS_SECRET_ACCESS_KEY"):
            ObjectFiles(url, options_of(url)).check()
        pipeline = Pipeline("shop", path=url)
        with pytest.raises(StorageError, match="refused the credentials"):
            pipeline.run()


def test_R131_a_server_that_does_not_answer_is_named(
    place: str, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"can't be reached.*AWS_ENDPOINT_URL"):
        ObjectFiles(place, options_of(place)).check()


def test_R131_clocks_apart_stop_a_run_before_it_writes(
    place: str, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = ObjectFiles.clock_ahead_seconds
    monkeypatch.setattr(
        ObjectFiles, "clock_ahead_seconds", lambda self, name: ahead(self, name) + 3600
    )
    held = acquire_run(Paths(place))
    with pytest.raises(StorageError, match="seconds ahead of"):
        held.claim()
    held.close()
    assert not is_running(Paths(place))
    assert s3.objects(prefix_of(place)) == []


def test_R131_what_may_not_be_written_is_said_in_a_line(
    place: str, s3: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By commands that only look, too."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert command(["log", "info", place]) == 1
    assert "the store can't be reached" in capsys.readouterr().err
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert command(["log", "info", "s3a://no-such-bucket/shop"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_R131_nobody_has_run_there_yet(place: str) -> None:
    pipeline = Pipeline("shop", path=place)
    with pytest.raises(Exception, match="run it first"):
        inspect(pipeline)
    with pytest.raises(Exception, match="has never run"):
        read_status(pipeline.paths.status)
    with pytest.raises(Exception, match="can't be kept at redis"):
        Pipeline("shop", path="redis://here/0")
