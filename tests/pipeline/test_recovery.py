"""The maps in the backing log, and what a restart makes of them. No Spark."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pillarbox.log import Log, LogCorruptError
from pillarbox.pipeline import PipelineError
from pillarbox.pipeline import backing as backing_log
from pillarbox.pipeline.backing import FileBackingLog, read_maps, read_states
from pillarbox.pipeline.inspection import restart_of_stream
from pillarbox.pipeline.maps import Attempt, Map, ProcessorState, Recovery, Reset

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def recover(step: int) -> Recovery:
    return Recovery(
        processor="count", step=step, inputs={"orders": (step * 10, step * 10 + 10)}, time=NOW
    )


def attempt(step: int, outputs: tuple[str, ...] = ("totals",)) -> Attempt:
    there = dict.fromkeys(outputs, 5)
    return Attempt(processor="count", step=step, hash=f"hash{step}", outputs=there, time=NOW)


def holding(*known: tuple[str, str]) -> Callable[[str, str], bool]:
    return lambda output, hash_: (output, hash_) in known


def after(*maps: Map) -> ProcessorState:
    last = ProcessorState()
    for map_ in maps:
        last.take(map_)
    return last


def test_R82_a_person_can_read_the_backing_log(tmp_path: Path) -> None:
    with FileBackingLog(f"{tmp_path}/backing") as backing:
        backing.write(recover(3))
        backing.write(attempt(3))
    with Log.open(tmp_path / "backing", readonly=True) as log:
        records = [json.loads(record) for frame in log.frames() for record in frame.records]
    assert records == [
        {
            "type": "recover",
            "processor": "count",
            "step": 3,
            "inputs": {"orders": [30, 40]},
            "time": "2026-01-02T00:00:00Z",
        },
        {
            "type": "attempt",
            "processor": "count",
            "step": 3,
            "hash": "hash3",
            "outputs": {"totals": 5},
            "time": "2026-01-02T00:00:00Z",
        },
    ]


def test_R82_the_maps_are_there_again_after_a_restart(tmp_path: Path) -> None:
    with FileBackingLog(f"{tmp_path}/backing") as backing:
        for step in range(3):
            backing.write(recover(step))
            backing.write(attempt(step))
        backing.write(recover(3))
    with FileBackingLog(f"{tmp_path}/backing") as backing:
        assert backing.last("count").recovery == recover(3)
        assert backing.last("count").attempt == attempt(2)
        assert backing.last("count").tried is None
        assert backing.last("other").recovery is None


def test_R82_processes_that_share_a_backing_log_know_of_each_others_maps(tmp_path: Path) -> None:
    path = f"{tmp_path}/backing"
    with FileBackingLog(path, shared=True) as one, FileBackingLog(path, shared=True) as other:
        one.write(recover(1))
        other.write(attempt(1))
        assert other.last("count").tried == attempt(1)
        assert one.last("count").tried is None
        one.write(recover(2))
        assert one.last("count").attempt == attempt(1)
    assert read_maps(path) == [recover(1), attempt(1), recover(2)]


@pytest.mark.parametrize("shared", [False, True])
def test_R82_old_maps_are_dropped_and_the_newest_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    monkeypatch.setattr(backing_log, "_SEGMENT_BYTES", 8192)
    monkeypatch.setattr(backing_log, "_MAPS_KEPT", 200)
    path = f"{tmp_path}/backing"
    reset = Reset(processor="count", generation=2, inputs={"orders": 0}, time=NOW)
    with FileBackingLog(path, shared=shared) as backing:
        backing.write(reset)
        for step in range(1000):
            backing.write(recover(step))
    assert len(read_maps(path)) < 500
    last = read_states(path)["count"]
    assert (last.recovery, last.generation) == (recover(999), 2)


def test_R82_nothing_read_yet() -> None:
    assert restart_of_stream(ProcessorState(), holding()).action == "begin"


def test_R82_no_attempt_resets_to_the_recovery_offsets() -> None:
    found = restart_of_stream(after(recover(3)), holding())
    assert (found.action, "orders 30 up to 40" in found.why) == ("again", True)


def test_R82_an_old_attempt_is_no_attempt_of_this_step() -> None:
    last = after(recover(2), attempt(2), recover(3))
    assert restart_of_stream(last, holding(("totals", "hash2"))).action == "again"


def test_R82_an_attempt_whose_hash_is_not_there_resets() -> None:
    last = after(recover(3), attempt(3))
    assert restart_of_stream(last, holding(("totals", "hash2"))).action == "again"


def test_R82_an_attempt_whose_hash_is_there_goes_on() -> None:
    last = after(recover(3), attempt(3))
    assert restart_of_stream(last, holding(("totals", "hash3"))).action == "go on"


def test_R82_outputs_recover_together() -> None:
    last = after(recover(3), attempt(3, ("large", "small")))
    found = restart_of_stream(last, holding(("large", "hash3")))
    assert found.action == "finish"
    assert "in large but not in small" in found.why


def test_R82_a_reset_begins_a_new_generation() -> None:
    reset = Reset(processor="count", generation=1, inputs={"orders": 7}, time=NOW)
    last = after(recover(3), attempt(3), reset)
    assert (last.generation, last.recovery, last.attempt) == (1, None, None)


def test_R82_a_pipeline_that_never_ran_says_so(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"no pipeline in {tmp_path}; run it first$"):
        read_maps(f"{tmp_path}/backing")


def test_R82_a_backing_log_that_is_damaged_is_not_called_missing(tmp_path: Path) -> None:
    with FileBackingLog(f"{tmp_path}/backing") as backing:
        for number in range(3):
            backing.write(recover(number))
    (segment,) = (each for each in (tmp_path / "backing").iterdir() if each.stat().st_size > 4096)
    data = bytearray(segment.read_bytes())
    data[data.index(b'"step":1')] ^= 1
    segment.write_bytes(data)
    with pytest.raises(LogCorruptError):
        read_maps(f"{tmp_path}/backing")
