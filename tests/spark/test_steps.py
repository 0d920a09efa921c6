"""R82, R84: a step has one hash for ever; an output knows which steps it has, and who may write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox import spark as on_spark
from pillarbox.log import Log, Retention
from pillarbox.spark.commits import admit, encode_meta, publish
from pillarbox.spark.steps import Step, named_step


def checkpoint(path: Path, *ends: list[str], watermark: int = 0) -> str:
    (path / "offsets").mkdir(parents=True, exist_ok=True)
    for batch, sources in enumerate(ends):
        head = json.dumps({"batchWatermarkMs": watermark * batch, "batchTimestampMs": 5 + batch})
        (path / "offsets" / str(batch)).write_text("\n".join(["v1", head, *sources]))
    return str(path)


def test_R82_the_hash_depends_on_processor_and_inputs_and_on_nothing_else(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "one", ['{"index": 5}'], ['{"index": 9}'])
    other = checkpoint(tmp_path / "two", ['{"index": 5}'], ['{"index": 9}'], watermark=7)
    step = on_spark.read_step(one, 1, "p")
    assert step.offsets == (on_spark.Input('{"index": 5}', '{"index": 9}'),)
    assert len(bytes.fromhex(step.hash)) == 32
    assert on_spark.read_step(other, 1, "p").hash == step.hash
    assert on_spark.read_step(one, 1, "q").hash != step.hash
    assert on_spark.read_step(one, 0, "p").hash != step.hash
    # Pinned: a restart with a newer Pillarbox must know the steps of an older one.
    assert step.hash == "ac726268ee212d4f0c7df62ff43923a76de1641d73c4d722e9d77c6d1b5171a0"


def test_R82_batches_without_new_data_are_told_apart_by_their_times(tmp_path: Path) -> None:
    ends = ['{"index": 5}']
    path = checkpoint(tmp_path, ends, ends, ends, watermark=10)
    assert on_spark.read_step(path, 1, "p").hash != on_spark.read_step(path, 2, "p").hash
    assert on_spark.read_step(path, 1, "p") == on_spark.read_step(path, 1, "p")


def test_R82_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(on_spark.OptionError, match="no offsets of batch 3"):
        on_spark.read_step(str(tmp_path), 3, "p")
    with pytest.raises(on_spark.OptionError, match="neither a directory nor a remote store"):
        on_spark.read_step("ftp://host/checkpoint", 3, "p")


def step(batch: int, end: int, start: int | None = None) -> Step:
    first = None if start is None else str(start)
    inputs = (on_spark.Input(first, str(end)),)
    return Step("p", batch, f"hash of {start} to {end}", offsets=inputs)


def do(log: Path, what: Step, *records: bytes, run: str = "one") -> None:
    publish(str(log), what, records, run=run)


def contents(path: Path) -> list[bytes]:
    with Log.open(path, readonly=True) as log:
        return [record for frame in log.frames() for record in frame.records]


def test_R82_a_step_is_done_once_however_often_it_is_published(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(3):
        do(log, step(0, 5), b"a", b"b")
    do(log, step(1, 7, 5), b"c")
    do(log, step(1, 7, 5), b"c", run="two")
    do(log, step(0, 5), b"a", b"b", run="two")
    assert contents(log) == [b"a", b"b", b"c"]
    last = on_spark.last_commit(str(log), "p")
    assert last is not None
    assert (last.hash, last.first_index, last.end_index) == ("hash of 5 to 7", 2, 3)
    assert on_spark.last_commit(str(log), "q") is None


def test_R82_control_without_the_check_a_replay_doubles_the_records(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        publish(str(log), step(0, 5), [b"a"], strategy="at-least-once", run="one")
    assert contents(log) == [b"a", b"a"]


def test_R82_a_history_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    do(log, step(0, 5), b"a")
    do(log, step(1, 9, 5), b"b")
    for other in (step(0, 6), step(1, 8, 5), step(2, 12, 8)):
        with pytest.raises(on_spark.DivergedError, match="do not belong together"):
            do(log, other, b"x", run="two")
    do(log, step(2, 12, 9), b"c", run="two")
    assert contents(log) == [b"a", b"b", b"c"]


def test_R83_a_run_that_was_replaced_can_not_write_any_more(tmp_path: Path) -> None:
    log = tmp_path / "log"
    do(log, step(0, 5), b"a", run="old")
    do(log, step(1, 7, 5), b"b", run="new")
    with pytest.raises(on_spark.FencedError, match="a later run"):
        do(log, step(2, 9, 7), b"zombie", run="old")
    do(log, step(2, 9, 7), b"c", run="new")
    assert contents(log) == [b"a", b"b", b"c"]


def test_R83_a_batch_without_tasks_replaces_nobody(tmp_path: Path) -> None:
    log = tmp_path / "log"
    do(log, step(0, 5), b"a", run="one")
    do(log, step(1, 7, 5), run="")
    do(log, step(2, 9, 7), b"b", run="one")
    assert contents(log) == [b"a", b"b"]
    assert [each.epoch for each in on_spark.step_commits(str(log))] == [1, 1, 1]


def test_R82_importing_the_package_imports_no_spark() -> None:
    code = "import sys, pillarbox.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_R73_retention_never_forgets_the_last_step(tmp_path: Path) -> None:
    log = tmp_path / "log"
    do(log, step(0, 5), b"a")
    with Log.open(log, segment_bytes=8192, retention=Retention(bytes=0)) as other:
        for _ in range(200):
            other.append(b"x" * 500)
        other.apply_retention()
    do(log, step(0, 5), b"a", run="two")
    assert contents(log).count(b"a") <= 1
    last = on_spark.last_commit(str(log), "p")
    assert last is not None
    assert last.hash == step(0, 5).hash


def test_R73_the_pin_that_version_0_2_gave_a_processor_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    publish(str(path), named_step("my job", "monday"), [b"a"], run="one")
    with Log.open(path) as log:
        for pin in log.pins():
            log.unpin(pin.removeprefix("pin:"))
        log.pin("processor.my_job", 0)
    publish(str(path), named_step("my job", "tuesday"), [b"b"], run="one")
    with Log.open(path, readonly=True) as log:
        (pin,) = log.pins()
        assert pin.startswith("pin:processor.my_job-")


def test_R82_commits_of_others_are_none_of_our_business(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append_committed([b"x"], b"something else")
        log.append_committed([b"y"], encode_meta(named_step("q", "monday"), 1, "run"))
        assert admit(log, step(0, 5), "one") == 1
    assert [each.processor for each in on_spark.step_commits(str(tmp_path / "log"))] == ["q"]
