"""What tasks stage and keep in mind, tried on the writers themselves: no JVM is started."""

from __future__ import annotations

import hashlib
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark import TaskContext

from pillarbox.log import Log
from pillarbox.spark import staging
from pillarbox.spark.commits import claim
from pillarbox.spark.errors import FencedError
from pillarbox.spark.mailbox_sink import MailboxBatchWriter, MailboxSink, MailboxStreamWriter
from pillarbox.spark.sink import LogBatchWriter, LogStreamWriter, Staged
from pillarbox.spark.staging import STAGING, collect_garbage

MANY = staging.INLINE_BYTES_MAX // 1000 + 50  # rows of a kilobyte: too many for a message


@pytest.fixture
def as_task(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let what follows be done by a task of this run."""

    def become(run: str) -> None:
        context = SimpleNamespace(
            getLocalProperty=lambda name: run if name == staging.RUN else None,
            partitionId=lambda: 0,
            taskAttemptId=lambda: 7,
        )
        monkeypatch.setattr(TaskContext, "get", lambda: context)

    return become


def batches(rows: int) -> Iterator[Any]:
    for start in range(0, rows, 100):
        numbers = range(start, min(start + 100, rows))
        yield pa.RecordBatch.from_pydict({"body": [b"%01000d" % n for n in numbers]})


def write_named(target: Path, epoch: int) -> LogBatchWriter:
    options = {
        "path": f"file:{target}",
        "processor": "totals",
        "step": f"step-{epoch}",
        "epoch": str(epoch),
    }
    return LogBatchWriter(options, ["body"])


def staged_in(target: Path) -> list[str]:
    return sorted(str(each) for each in (target / STAGING).glob("*/*"))


def test_R82_the_abort_of_a_fenced_run_leaves_the_files_of_the_live_one(
    tmp_path: Path, as_task: Callable[[str], None]
) -> None:
    target = tmp_path / "out"
    as_task("run 1")
    earlier = write_named(target, claim(f"file:{target}", "totals"))
    from_earlier = earlier.write(batches(MANY))
    as_task("run 2")
    later = write_named(target, claim(f"file:{target}", "totals"))
    from_later = later.write(batches(MANY))
    assert len(staged_in(target)) == 2

    with pytest.raises(FencedError):
        earlier.commit([from_earlier])
    earlier.abort([from_earlier, None])
    assert isinstance(from_later, Staged)
    assert staged_in(target) == from_later.written[""].files

    later.commit([from_later])
    assert staged_in(target) == []
    with Log.open(target, readonly=True) as log:
        assert log.end_index == MANY


def test_R82_control_an_abort_that_takes_all_leaves_nothing_to_publish(
    tmp_path: Path, as_task: Callable[[str], None]
) -> None:
    target = tmp_path / "out"
    as_task("run 1")
    earlier = write_named(target, claim(f"file:{target}", "totals"))
    earlier.write(batches(MANY))
    as_task("run 2")
    later = write_named(target, claim(f"file:{target}", "totals"))
    from_later = later.write(batches(MANY))
    earlier.sink.discard(None)  # as every abort did
    with pytest.raises(FileNotFoundError):
        later.commit([from_later])


def test_R82_what_a_killed_run_has_left_goes_with_the_next_commit_of_its_successor(
    tmp_path: Path, as_task: Callable[[str], None]
) -> None:
    target = tmp_path / "out"
    as_task("run 1")
    earlier = write_named(target, 1)
    earlier.commit([earlier.write(batches(MANY))])
    write_named(target, 3).write(batches(MANY))  # and then it is killed
    as_task("run 2")
    later = write_named(target, 2)
    told = later.write(batches(MANY))
    as_task("run 3")
    write_named(target, 4).write(batches(MANY))  # about to take over
    later.commit([told])
    assert staging.staged_runs(str(target), "totals") == {"run 3"}


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_R82_the_end_of_a_run_s_batch_leaves_the_files_of_another_run(
    tmp_path: Path, as_task: Callable[[str], None], ending: str
) -> None:
    """Into a mailbox on disk: the driver sends what its own tasks have left."""
    url = f"file:{tmp_path}/orders"
    options = {"processor": "totals"}
    writers = [MailboxStreamWriter(url, options, ["body"]) for _ in range(2)]
    told = []
    for number, writer in enumerate(writers):
        as_task(f"run {number}")
        told.append(writer.write(batches(MANY)))
    getattr(writers[0], ending)([told[0], None], 0)
    assert len(staged_in(tmp_path / "log")) == 1
    writers[1].commit([told[1]], 0)
    assert staged_in(tmp_path / "log") == []


@pytest.mark.parametrize("kind", [LogBatchWriter, MailboxBatchWriter])
def test_R82_a_write_without_a_name_leaves_nothing_though_no_task_told_anything(
    tmp_path: Path, as_task: Callable[[str], None], kind: Any
) -> None:
    as_task("")
    if kind is LogBatchWriter:
        target, writer = tmp_path, kind({"path": f"file:{tmp_path}"}, ["body"])
    else:
        target, writer = tmp_path / "log", kind(f"file:{tmp_path}/orders", {}, ["body"])
    writer.write(batches(MANY))
    assert len(staged_in(target)) == 1
    writer.abort([None])
    assert staged_in(target) == []


def test_R82_what_a_run_left_long_ago_is_removed_by_another(tmp_path: Path) -> None:
    left = Path(staging.staging_directory(str(tmp_path), "totals", "run 1"))
    of_others = Path(staging.staging_directory(str(tmp_path), "counts", "run 1"))
    before_runs_had_their_own = tmp_path / STAGING / "totals"
    for each in (left, of_others, before_runs_had_their_own):
        each.mkdir(parents=True)
        (each / "0-0.staged").touch()
    collect_garbage(str(tmp_path), "totals", "run 2")
    assert all(map(Path.exists, (left, of_others, before_runs_had_their_own)))
    long_ago = time.time() - staging.ABANDONED_SECONDS - 1
    for each in (left, of_others, before_runs_had_their_own):
        os.utime(each, (long_ago, long_ago))
    collect_garbage(str(tmp_path), "totals", "run 2")
    assert os.listdir(tmp_path / STAGING) == [of_others.name]


def test_R82_a_stream_s_abort_without_any_message_removes_nothing(tmp_path: Path) -> None:
    options = {"path": f"file:{tmp_path}/out", "checkpointLocation": f"{tmp_path}/c"}
    writer = LogStreamWriter({**options, "processor": "totals"}, ["body"])
    staged = Path(staging.staging_directory(f"{tmp_path}/out", "totals", "run 1"))
    staged.mkdir(parents=True)
    writer.abort([None, None], 0)
    assert staged.exists()


def rows_of(rows: int) -> Iterator[Any]:
    sink = MailboxSink("http://127.0.0.1:9324/orders", {}, ["body"], "totals")
    return sink._rows(batches(rows), "totals/0/0")


def kept_bytes(rows: int) -> int:
    """What the ids of so many rows keep in memory when the rows themselves are gone."""
    tracemalloc.start()
    try:
        generator = rows_of(rows + 1)
        for _ in range(rows):
            next(generator)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_R86_the_ids_of_a_partition_keep_digests_and_no_bodies() -> None:
    few, many = kept_bytes(1_000), kept_bytes(11_000)
    assert (many - few) / 10_000 < 300, "bytes kept for each row of a kilobyte"


def test_R86_equal_rows_have_ids_of_their_own_as_ever() -> None:
    sink = MailboxSink("http://127.0.0.1:9324/orders", {}, ["body"], "totals")
    batch = pa.RecordBatch.from_pydict({"body": [b"tea", b"tea", b"milk"]})
    found = [row.options["deduplication_id"] for row in sink._rows(iter([batch]), "totals/0/0")]
    encode = msgspec.msgpack.Encoder(order="deterministic").encode
    expected = [
        hashlib.sha256(encode(("totals/0/0", body, {})) + number).hexdigest()
        for body, number in ((b"tea", b"1"), (b"tea", b"2"), (b"milk", b"1"))
    ]
    assert found == expected
