"""Typed logs without Spark: numbering, compaction, and what many steps cost."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

import msgspec
import pyarrow as pa
from deltalake.transaction import RemoveAction
from pyarrow.parquet import write_table

from pillarbox import open_mailbox
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.backing import FileBackingLog
from pillarbox.pipeline.failures import Failure, redrive
from pillarbox.pipeline.maintenance import EVERY_STEPS, FILES_MIN, compact, maintain_outputs
from pillarbox.pipeline.maps import Attempt, ProcessorState, Range, Recovery
from pillarbox.pipeline.outputs import Outputs
from pillarbox.pipeline.paths import log_behind
from pillarbox.spark import SparkError
from pillarbox.spark import table as module
from pillarbox.spark.options import time_ns
from pillarbox.spark.steps import Input, Step
from pillarbox.spark.table import TableLog, table_at
from pillarbox.spark.table_files import NewFile, create_table, deltalake

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
FIELDS = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("number", "long"), ("tea", "string"))
]


@pytest.fixture
def table(tmp_path: Path) -> TableLog:
    path = str(tmp_path / "table")
    create_table(path, json.dumps({"type": "struct", "fields": FIELDS}), columns=["number", "tea"])
    return TableLog(path)


def add(table: TableLog, *numbers: int) -> None:
    table.append([{"number": n, "tea": f"tea {n}"} for n in numbers], {})


def rows(table: TableLog) -> list[tuple[int, Any]]:
    return [(index, row["number"]) for index, row in TableLog(table.path).rows()]


def test_R70_compaction_keeps_rows_and_their_indices(table: TableLog) -> None:
    for number in range(0, 80, 2):
        add(table, number, number + 1)
    before = rows(table)
    assert compact(table, 2 * FILES_MIN - 1) == 0  # too few of them are whole before that
    assert compact(table, 61) == 30
    assert rows(table) == before == [(n, n) for n in range(80)]
    assert len(table.files()) == 1 + 10
    assert [index for index, _ in table.rows(17, 19)] == [17, 18]
    add(table, 80)
    assert rows(table)[-1] == (80, 80)
    old = TableLog(table.path)
    assert table.vacuum(0) == 30
    assert rows(old) == rows(table)


def test_R86_the_time_of_a_row_is_a_position_at_that_row(table: TableLog) -> None:
    for number in range(40):
        add(table, number)
    found = [table.index_at_time(time_ns("start", file.time.isoformat())) for file in table.files()]
    assert found == list(range(40))


def test_R87_records_are_redriven_into_a_typed_log_beside_a_mailbox(
    table: TableLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_mailbox(f"file:{tmp_path}/orders", bytes) as orders:
        orders.send(b"{}")
    tea = msgspec.defstruct("Tea", [("number", int), ("tea", str)])
    pipeline = Pipeline("shop", path=tmp_path / "shop")
    pipeline.log("teas", tea, url=f"file:{table.path}")
    pipeline.sink(inputs="teas", id="s")(lambda teas, step: None)
    failure = Failure(processor="s", cause="?", log="teas", body=b'{"number": 7, "tea": "oolong"}')
    monkeypatch.setattr("pillarbox.pipeline.failures.failures", lambda *_: [(0, failure)])

    assert redrive(pipeline.graph, "s", table.path) == 1

    assert rows(table) == [(0, 7)]
    assert log_behind(f"file:{table.path}") is None  # what is read here pins nothing of the store


def synced_names(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    synced: set[str] = set()

    def sync(handle: int) -> None:
        synced.add(Path(f"/proc/self/fd/{handle}").readlink().name)

    monkeypatch.setattr(os, "fsync", sync)
    return synced


def test_R130_a_commit_that_delta_retried_under_a_later_version_is_synced(
    table: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program, which does not know our transactions, has committed meanwhile."""
    other = deltalake().DeltaTable(table.path)
    other.create_write_transaction([], "append", other.schema(), partition_by=["_first", "_time"])
    synced = synced_names(monkeypatch)
    add(table, 1)
    assert table.version == 2
    assert f"{2:020}.json" in synced


def test_R130_files_that_left_the_table_are_deleted_before_it_forgets_them(
    table: TableLog,
) -> None:
    """A run that ends before its files are old enough leaves them to a run on another day."""
    add(table, 0)
    (file,) = table.files()
    yesterday = int((time.time() - 24 * 3600) * 1000)
    removed = RemoveAction(file.name, True, yesterday, file.size_bytes)
    assert table._commit([removed], {}, {})
    for number in range(1, 30):
        add(table, number)
    assert not Path(table.path, file.name).exists()
    assert rows(table) == [(n, n) for n in range(1, 30)]


def step_files(table: TableLog, count: int) -> list[str]:
    """Commit steps as Spark writes them: each in a folder, with a checksum beside the file."""
    folders = [f"s,{number}-x" for number in range(count)]
    for number, folder in enumerate(folders):
        Path(table.path, folder).mkdir()
        Path(table.path, folder, ".part.crc").touch()
        rows = pa.Table.from_pylist([{"number": number, "tea": "tea"}], table.schema)
        offsets = (Input(str(number), str(number + 1)),)
        step = Step("s", number, f"hash {number}", offsets=offsets)
        assert table.commit([table.write([rows], f"{folder}/part-")], step)
    return folders


def folders_in(table: TableLog) -> list[str]:
    return [each.name for each in Path(table.path).iterdir() if each.name.startswith("s,")]


def test_R88_no_folders_are_left_of_steps_whose_files_were_merged(table: TableLog) -> None:
    folders = step_files(table, FILES_MIN + 1)
    assert compact(table, FILES_MIN) == FILES_MIN
    assert sorted(folders_in(table)) == sorted(folders)
    table.vacuum(0)
    assert folders_in(table) == folders[-1:]
    assert len(rows(table)) == len(folders)


def test_R130_a_restart_leaves_merged_files_to_their_readers(table: TableLog) -> None:
    """A reader of another pipeline, or a query, may still use them for some hours."""
    folders = step_files(table, FILES_MIN)
    slow = TableLog(table.path)
    slow.files()
    compact(table, table.end_index)
    Path(table.path, "s,99-x").mkdir()  # of a step that was interrupted
    Outputs({}, table.path).take_over("s")
    assert sorted(folders_in(table)) == sorted(folders)
    assert [row["number"] for _, row in slow.rows()] == list(range(FILES_MIN))


def test_R130_a_merged_file_that_can_not_be_committed_is_removed(
    table: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_files(table, FILES_MIN)
    monkeypatch.setattr(TableLog, "_commit", lambda *_: False)
    assert compact(table, table.end_index) == 0
    assert not list(Path(table.path).glob("compacted-*"))


def test_R130_commits_that_delta_makes_itself_are_synced(
    table: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After power loss, a commit in the middle would be empty, and no program could read on."""
    step_files(table, FILES_MIN)
    compact(table, table.end_index)
    synced, before = synced_names(monkeypatch), table.version
    table.vacuum(0)
    grams = {"name": "grams", "type": "long", "nullable": True, "metadata": {}}
    table.add_columns([grams])
    assert table.version == before + 3
    assert {f"{before + each:020}.json" for each in (1, 2, 3)} <= synced


def test_R130_only_synced_checkpoints_replace_commits(
    table: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta would write a checkpoint after a vacuum, and remove the commits before it."""
    step_files(table, FILES_MIN)
    compact(table, table.end_index)
    while (table.version + 2) % module.CHECKPOINT_COMMITS:
        add(table, table.version)
    table.vacuum(0)
    assert (table.version + 1) % module.CHECKPOINT_COMMITS in (0, 1)
    assert not [x for x in table.storage.names("_delta_log") if x.endswith(".parquet")]


def test_R70_timestamps_of_any_year_are_read_and_merged(tmp_path: Path) -> None:
    """Spark writes them as INT96, which in nanoseconds ends in the year 2262."""
    path = str(tmp_path / "times")
    fields = [{"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}]
    create_table(path, json.dumps({"type": "struct", "fields": fields}), columns=["at"])
    table = TableLog(path)
    years = [1, 1600, 2026, 2300, 9999]
    times = [datetime.datetime(year, 1, 2, 3, tzinfo=datetime.UTC) for year in years]
    sink = pa.BufferOutputStream()
    column = pa.array(times, pa.timestamp("us", "UTC"))
    write_table(pa.table({"at": column}), sink, use_deprecated_int96_timestamps=True)
    of_spark = sink.getvalue().to_pybytes()
    for number in range(FILES_MIN):
        name = f"s,{number}.parquet"
        table.storage.write(name, of_spark)
        offsets = (Input(str(number), str(number + 1)),)
        step = Step("s", number, f"hash {number}", offsets=offsets)
        assert table.commit([NewFile(name, len(of_spark), len(times))], step)
    assert [row["at"] for _, row in table.rows()] == times * FILES_MIN
    assert compact(table, table.end_index) == FILES_MIN
    assert [row["at"] for _, row in table.rows()] == times * FILES_MIN


def test_R82_compaction_leaves_what_the_table_knows_of_steps(table: TableLog) -> None:
    steps = [Step("s", n, f"hash {n}", offsets=(Input(str(n), str(n + 1)),)) for n in range(40)]
    for each in steps:
        add(table, each.number)
        assert table.commit([], each)
    assert compact(table, table.end_index) > 0
    assert all(table.holds(each) for each in steps)
    assert not table.commit([], steps[-1])
    other = TableLog(table.path)
    add(other, 99)
    assert other.files()[-1].first == 40


def test_R82_a_writer_beside_a_compaction_is_not_lost(table: TableLog) -> None:
    for number in range(20):
        add(table, number)
    stale = TableLog(table.path)
    stale.files()
    add(table, 20)
    assert compact(stale, 20) == 20  # it looks again first
    add(table, 21)
    assert rows(table) == [(n, n) for n in range(22)]


def test_R88_the_log_of_a_table_does_not_grow_with_its_commits(
    table: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also seen by one who has not looked for so long that what came next is gone."""
    monkeypatch.setattr(module, "CHECKPOINT_COMMITS", 10)
    monkeypatch.setattr(module, "_SEARCHED_COMMITS", (8, 16))
    slow = TableLog(table.path)
    for number in range(100):
        add(table, number)
    assert len(table.storage.names("_delta_log")) < 45
    slow.refresh()
    for seen in (slow, TableLog(table.path)):
        assert [row["number"] for _, row in seen.rows()] == list(range(100))
        assert seen.end_index == 100
    add(slow, 100)
    assert rows(table)[-1] == (100, 100)


def test_R131_rows_that_another_program_has_taken_away_are_noticed(table: TableLog) -> None:
    for number in range(4):
        add(table, number)
    table.check(0)
    deltalake().DeltaTable(table.path).delete("number = 1")
    table.refresh()
    with pytest.raises(SparkError, match=r"the rows 1 to 2 .* are no longer in the table"):
        table.check(0)
    table.check(2)  # what was read before does not matter
    table.storage.remove(table.files()[-2].name)
    with pytest.raises(SparkError, match="1 files of the table disappeared"):
        table.check(2)
    table.check(3)


def test_R82_a_step_is_known_when_others_have_committed_since(table: TableLog) -> None:
    """Of a writer that rests while another one goes on; a reset to its last step asks for it."""
    done = Step("s", 0, "hash 0", offsets=(Input(None, "1"),))
    assert not table.holds_hash("s", 0, done.hash)
    assert table.commit([], done)
    for number in range(70):
        offsets = (Input(str(number), str(number + 1)),)
        assert table.commit([], Step("t", number, f"other {number}", offsets=offsets))
    assert table.holds_hash("s", 0, done.hash)
    assert not table.holds_hash("s", 0, "hash of another step 0")
    assert not table.holds_hash("s", 1, "hash 1")


def test_R83_a_table_whose_creation_was_killed_is_created_again(tmp_path: Path) -> None:
    """A commit is staged under a name of its own, and then linked to the one that it gets."""
    path = tmp_path / "out"
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / f"{0:020}.json#1").write_bytes(b"{")
    assert table_at(str(path)) is None
    create_table(str(path), json.dumps({"type": "struct", "fields": FIELDS}), columns=["number"])
    add(TableLog(str(path)), 1)
    assert rows(TableLog(str(path))) == [(0, 1)]


def test_R130_an_append_that_is_refused_each_time_ends(
    table: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableLog, "_try", lambda *_: False)
    with pytest.raises(SparkError, match="other writers keep committing"):
        add(table, 1)


def test_R130_a_table_that_can_not_be_read_is_named_in_a_line(table: TableLog) -> None:
    table.storage.write(f"_delta_log/{0:020}.json", b"{")
    with pytest.raises(OSError, match=r"table .* can't be read: ") as caught:
        TableLog(table.path)
    assert "\n" not in str(caught.value)


def test_R131_the_check_notices_rows_of_another_program(tmp_path: Path) -> None:
    pipeline = Pipeline("p", path=tmp_path)
    for name in ("in", "out"):
        pipeline.log(name, int)
        fields = [{"name": "body", "type": "long", "nullable": True, "metadata": {}}]
        schema = json.dumps({"type": "struct", "fields": fields})
        create_table(pipeline.directory(name), schema, columns=["body"])
    pipeline.stream(inputs="in", outputs="out", id="s")(lambda rows: rows)
    pipeline.check(on_disk=True)
    rows = pa.table({"body": [1], "_first": pa.nulls(1, pa.int64())})
    for name in ("in", "out"):
        times = pa.nulls(1, pa.timestamp("us", "UTC"))
        table = pipeline.directory(name)
        deltalake().write_deltalake(table, rows.append_column("_time", times), mode="append")
    with pytest.raises(PipelineError) as caught:
        pipeline.check(on_disk=True)
    assert len(caught.value.problems) == 2
    assert all("by another program" in each for each in caught.value.problems)


@pytest.mark.parametrize("strategy", ["exactly-once", "at-least-once"])
def test_R130_files_are_merged_when_each_reader_that_leaves_maps_has_read_them(
    tmp_path: Path, strategy: Any
) -> None:
    pipeline = Pipeline("p", path=tmp_path)
    for name in ("in", "out", "more"):
        pipeline.log(name, int)
    pipeline.stream(inputs="in", outputs="out", id="s")(lambda rows: rows)
    pipeline.stream(inputs="out", outputs="more", id="t", strategy=strategy)(lambda rows: rows)
    for path in (pipeline.directory("out"), pipeline.errors_directory("s")):
        fields = [{"name": "body", "type": "long", "nullable": True, "metadata": {}}]
        create_table(path, json.dumps({"type": "struct", "fields": fields}), columns=["body"])
    for number in range(FILES_MIN):
        TableLog(pipeline.directory("out")).append([{"body": number}], {})
    maintain_outputs(pipeline, "s", lambda _: ProcessorState())
    merged = len(TableLog(pipeline.directory("out")).files()) == 1
    assert merged is (strategy == "at-least-once")


def steps(table: TableLog, count: int) -> Iterator[float]:
    """Do tiny steps with their maps, look after the table as a run does; CPU seconds of each."""
    with FileBackingLog(f"{table.path}-backing") as backing:
        for number in range(count):
            start, offsets = time.process_time(), (Input(str(number), str(number + 1)),)
            step = Step("s", number, f"hash {number}", offsets=offsets)
            inputs: dict[str, Range] = {"in": (number, number + 1)}
            backing.write(Recovery(processor="s", step=number, inputs=inputs, time=NOW))
            outputs = {"out": table.end_index}
            backing.write(
                Attempt(processor="s", step=number, hash=step.hash, outputs=outputs, time=NOW)
            )
            assert not table.holds(step)
            rows = pa.Table.from_pylist([{"number": number, "tea": "tea"}], table.schema)
            assert table.commit([table.write([rows])], step)
            if number % EVERY_STEPS == EVERY_STEPS - 1:
                compact(table, number - 50)
                table.vacuum(0)
            yield time.process_time() - start


def ratio_of_late_to_early(took: list[float], part: int) -> float:
    """Of all steps in two parts of a run, maintenance included."""
    return sum(took[-part:]) / sum(took[part : 2 * part])


@pytest.mark.timeout(300)
def test_R88_the_cost_of_a_step_stays_flat(table: TableLog) -> None:
    assert ratio_of_late_to_early(list(steps(table, 300)), 100) < 1.5


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_R88_soak_a_hundred_thousand_steps_keep_the_cost_of_a_step_flat(table: TableLog) -> None:
    """Steps are hundreds of times quicker than Spark's, so removed files are forgotten sooner."""
    delta = deltalake().DeltaTable(table.path)
    delta.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 1 minutes"})
    table.refresh()
    took = []
    for seconds in steps(table, 100_000):
        took.append(seconds)
        if len(took) % 1000 == 0:
            log = table.storage.names("_delta_log")
            newest = max(name for name in log if name.endswith(".parquet"))
            size = table.storage.size(f"_delta_log/{newest}")
            print(
                f"{len(took)} {sum(took[-1000:]):.1f} ms of CPU a step, {len(log)} log entries,"
                f" a checkpoint of {size:,} bytes"
            )
    assert ratio_of_late_to_early(took, 5000) < 1.3
    assert len(TableLog(table.path).files()) < 1000
