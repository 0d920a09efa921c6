"""R131: what a pipeline keeps in a remote store, without Spark: files, maps, claims, commits."""

from __future__ import annotations

import datetime
import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.inspection import inspect
from pillarbox.pipeline.maintenance import compact
from pillarbox.pipeline.maps import Recovery
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.remote_backing import RemoteBackingLog, read_entries, running_token
from pillarbox.pipeline.reset import reset
from pillarbox.pipeline.running import StoppingError, acquire_run, batch_for_run, is_running
from pillarbox.pipeline.status import StatusFile, first_status, read_status
from pillarbox.spark.errors import FencedError, StorageError
from pillarbox.spark.files import files_at, remote_files_at
from pillarbox.spark.steps import Input, Step
from pillarbox.spark.table import TableLog
from pillarbox.spark.table_files import NewFile, create_table
from tests.spark.stores.store import SLOW, Directory, Store, on

FIELDS = [{"name": "number", "type": "long", "nullable": True, "metadata": {}}]
FIRST_COMMIT = "_delta_log/00000000000000000001.json"
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@on("directory", "s3", "hdfs")
def test_R131_a_file_is_created_once_and_replaced_whole(place: str, store: Store) -> None:
    files = files_at(place)
    if isinstance(store, Directory):
        Path(place).mkdir()
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


def test_R131_of_many_that_create_a_file_one_succeeds(place: str) -> None:
    files = files_at(place)
    done: list[int] = []

    def create(number: int) -> None:
        if files.create("folder/claim", b"%d" % number):
            done.append(number)

    threads = [threading.Thread(target=create, args=[number]) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert files.read("folder/claim") == b"%d" % done[0]
    assert len(done) == 1
    assert files.names("folder") == ["claim"]


def test_R131_a_folder_moves_and_a_second_time_nothing_happens(place: str) -> None:
    files = files_at(place)
    files.write("old/commits/0", b"done")
    for _ in range(2):
        files.move("old", "kept/new")
    assert (files.names("old"), files.read("kept/new/commits/0")) == ([], b"done")
    assert files.missing(["kept/new/commits/0", "old/commits/0"]) == ["old/commits/0"]
    files.remove("kept")
    assert files.names() == []


def recovery(step: int) -> Recovery:
    return Recovery(processor="p", step=step, inputs={"words": (step, step + 1)}, time=NOW)


@pytest.mark.parametrize("many", [False, True])
def test_R131_the_later_run_claims_and_the_earlier_can_write_nothing_more(
    place: str, store: Store, many: bool
) -> None:
    """Also when the entries are gone among which the earlier one would write."""
    paths, steps = Paths(place), store.many if many else 1
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


def test_R131_a_file_whose_creation_was_not_confirmed_is_recognised(
    place: str, store: Store
) -> None:
    with store.losing(place, "claim") as through:
        files = files_at(through)
        assert files.create("claim", b"one")
        assert not files.create("claim", b"two")
    assert files_at(place).read("claim") == b"one"
    with store.losing(place, "claim") as through:
        files_at(through).write("claim", b"three")
    assert files_at(place).read("claim") == b"three"
    assert files_at(place).names() == ["claim"]


def test_R131_a_map_whose_confirmation_was_lost_is_recognised(place: str, store: Store) -> None:
    with store.losing(place, "/backing/", 2) as through, acquire_run(Paths(through)) as held:
        held.claim()
        held.backing().write(recovery(0))
        held.backing().write(recovery(1))
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


@on("s3", SLOW)
def test_R131_a_typed_log_on_a_remote_store(place: str) -> None:
    table, count = table_at(place), 20
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
    place: str, store: Store, exactly_once: bool
) -> None:
    file = file_of(table_at(place), 1, 2)
    with store.losing(place, FIRST_COMMIT) as through:
        assert TableLog(through).commit([file], STEP, check=exactly_once)
    assert numbers(place) == [(0, 1), (1, 2)]


@on("s3")
def test_R88_the_status_is_kept_on_the_remote_store(place: str) -> None:
    pipeline = Pipeline("shop", path=place)
    file = StatusFile(pipeline.paths.status, first_status("shop", "local", pipeline.graph, ()))
    file.status.master = "other"
    file.save(soon=True)
    assert read_status(pipeline.paths.status).master == "local"
    file.save()
    assert read_status(pipeline.paths.status).master == "other"


def test_R131_clocks_apart_stop_a_run_before_it_writes(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = remote_files_at(place)
    files.write("claim", b"one")
    assert abs(time.time() - files.written_at("claim")) < 60
    files.remove("claim")
    kind = type(files)
    written_at = kind.written_at
    monkeypatch.setattr(kind, "written_at", lambda self, name: written_at(self, name) - 3600)
    held = acquire_run(Paths(place))
    with pytest.raises(StorageError, match="seconds ahead of"):
        held.claim()
    held.close()
    assert not is_running(Paths(place))
    assert files.names() == []


def test_R131_nobody_has_run_there_yet(place: str) -> None:
    pipeline = Pipeline("shop", path=place)
    with pytest.raises(Exception, match="run it first"):
        inspect(pipeline)
    with pytest.raises(Exception, match="has never run"):
        read_status(pipeline.paths.status)
    with pytest.raises(Exception, match="can't be stored at redis"):
        Pipeline("shop", path="redis://here/0")
