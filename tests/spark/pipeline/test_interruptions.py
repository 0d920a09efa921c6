"""A step interrupted after each of its acts: what the backing log holds, and what comes out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import pillarbox.spark as ps
from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.backing import FileBackingLog
from pillarbox.pipeline.graph import Strategy
from pillarbox.pipeline.inspection import inspect, position
from pillarbox.pipeline.outputs import Outputs
from pillarbox.pipeline.reset import reset
from pillarbox.pipeline.step_result import OutputRows, StepResult
from pillarbox.spark.sink import strategy_of
from tests.spark.pipeline.support import crash, finish, maps, read, write

WORDS = [b"one", b"two", b"three", b"four"]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    write(tmp_path / "words", WORDS)
    return tmp_path / "words"


def copying(words: Path, strategy: Strategy = "exactly-once") -> Pipeline:
    """A chain of one stream that copies words."""
    pipeline = Pipeline("copy", path=words.parent / "copy")
    pipeline.log("words", bytes, url=f"file:{words}")
    pipeline.log("out", bytes)
    pipeline.stream(inputs="words", outputs="out", id="s", strategy=strategy)(lambda words: words)
    return pipeline


def fanning_out(words: Path) -> Pipeline:
    pipeline = Pipeline("fan", path=words.parent / "fan")
    pipeline.log("words", bytes, url=f"file:{words}")
    pipeline.log("left", bytes)
    pipeline.log("right", bytes)

    @pipeline.stream(inputs="words", outputs=["left", "right"])
    def split(words: DataFrame) -> dict[str, DataFrame]:
        return {"left": words.where("_index % 2 = 0"), "right": words.where("_index % 2 = 1")}

    return pipeline


def recovery(start: int | None = None, end: int = 4, step: int = 0) -> dict[str, Any]:
    inputs = {"words": [start, end]}
    return {"type": "recover", "processor": "s", "step": step, "inputs": inputs}


def attempt(pipeline: Pipeline, index: int = 0, step: int = 0) -> dict[str, Any]:
    found = ps.read_step(pipeline.paths.checkpoint("s"), step, "s").hash
    named = {"processor": "s", "step": step, "hash": found, "outputs": {"out": index}}
    return {"type": "attempt"} | named


def restart_of(pipeline: Pipeline) -> str:
    (found,) = inspect(pipeline)
    return found.restart.action


def test_R82_interrupted_before_the_recovery_map(words: Path, spark: Any) -> None:
    pipeline = copying(words)
    crash(pipeline, spark, "begun")
    assert maps(pipeline) == []
    assert restart_of(pipeline) == "begin"
    finish(pipeline, spark)
    assert maps(pipeline) == [recovery(), attempt(pipeline)]
    assert read(pipeline.directory("out")) == WORDS


def test_R82_interrupted_after_the_recovery_map(words: Path, spark: Any) -> None:
    pipeline = copying(words)
    crash(pipeline, spark, "recovery")
    assert maps(pipeline) == [recovery()]
    assert restart_of(pipeline) == "again"
    write(words, [b"five"])  # is not read in the step that is run again
    finish(pipeline, spark)
    assert maps(pipeline) == [
        recovery(),
        recovery(),
        attempt(pipeline),
        recovery(4, 5, step=1),
        attempt(pipeline, 4, step=1),
    ]
    assert read(pipeline.directory("out")) == [*WORDS, b"five"]


def test_R82_interrupted_after_the_attempt_map(words: Path, spark: Any) -> None:
    pipeline = copying(words)
    crash(pipeline, spark, "attempt")
    before = maps(pipeline)
    with FileBackingLog(pipeline.paths.backing) as backing:
        (stream,) = pipeline.graph.processors
        assert position(pipeline, stream, backing.last("s")) == {"words": 0}
    assert before == [recovery(), attempt(pipeline)]
    assert read(pipeline.directory("out")) == []
    assert restart_of(pipeline) == "again"
    finish(pipeline, spark)
    assert maps(pipeline) == before * 2  # the hash of a step that is run again is the same
    assert read(pipeline.directory("out")) == WORDS


def test_R82_interrupted_after_the_output(words: Path, spark: Any) -> None:
    pipeline = copying(words)
    crash(pipeline, spark, "output")
    assert maps(pipeline) == [recovery(), attempt(pipeline)]
    with FileBackingLog(pipeline.paths.backing) as backing:
        (stream,) = pipeline.graph.processors
        assert position(pipeline, stream, backing.last("s")) == {"words": 4}
    assert read(pipeline.directory("out")) == WORDS
    assert restart_of(pipeline) == "go on"
    finish(pipeline, spark)
    assert maps(pipeline)[2:] == [recovery(), attempt(pipeline, 4)]
    assert read(pipeline.directory("out")) == WORDS


def test_R85_control_at_least_once_writes_an_interrupted_step_twice(
    words: Path, spark: Any
) -> None:
    pipeline = copying(words, "at-least-once")
    crash(pipeline, spark, "output")
    finish(pipeline, spark)
    assert maps(pipeline) == []
    assert read(pipeline.directory("out")) == WORDS * 2


def test_R85_at_most_once_never_runs_a_step_again(words: Path, spark: Any) -> None:
    pipeline = copying(words, "at-most-once")
    crash(pipeline, spark, "recovery")
    write(words, [b"five"])
    finish(pipeline, spark)
    assert read(pipeline.directory("out")) == [b"five"]
    assert maps(pipeline) == [recovery(), recovery(4, 5, step=1)]


def test_R85_a_sink_outside_a_pipeline_says_why_it_has_no_at_most_once() -> None:
    with pytest.raises(ps.OptionError, match="exactly-once, which also writes it at most once"):
        strategy_of({"strategy": "at-most-once"})
    with pytest.raises(ps.OptionError, match="got 'twice'"):
        strategy_of({"strategy": "twice"})


def test_R82_several_outputs_recover_together(words: Path, spark: Any) -> None:
    """The crash comes when one of the outputs is committed and the other is not."""
    pipeline = fanning_out(words)
    crash(pipeline, spark, "attempt")
    checkpoint = pipeline.paths.checkpoint("split")
    # What the interrupted step would have done to one output, done by hand.
    rows = spark.createDataFrame([(bytearray(w),) for w in WORDS[::2]], "body BINARY").coalesce(1)
    half = Outputs({"left": pipeline.directory("left")}, pipeline.errors_directory("split"))
    step = ps.read_step(checkpoint, 0, "split")
    half.write(StepResult({"left": OutputRows(rows)}), step, {}, check=True)
    (found,) = inspect(pipeline)
    assert found.restart.action == "finish"
    assert "in left but not in right" in found.restart.why
    finish(pipeline, spark)
    assert read(pipeline.directory("left")) == WORDS[::2]
    assert read(pipeline.directory("right")) == WORDS[1::2]


def test_R82_a_lost_checkpoint_is_not_taken_for_a_beginning(words: Path, spark: Any) -> None:
    pipeline = copying(words)
    finish(pipeline, spark)
    shutil.rmtree(pipeline.paths.checkpoint("s"))
    with pytest.raises(Exception, match="reset s --to last"):
        finish(pipeline, spark)
    write(words, [b"five"])
    (made,) = reset(pipeline, ["s"], "last")
    assert (made.generation, made.inputs) == (1, {"words": 4})
    finish(pipeline, spark)
    assert read(pipeline.directory("out")) == [*WORDS, b"five"]


def test_R84_a_reset_to_the_beginning_runs_every_record_again(words: Path, spark: Any) -> None:
    pipeline = copying(words)
    finish(pipeline, spark)
    reset(pipeline, ["s"], "2")
    (again,) = reset(pipeline, ["s"], "last")  # it has not been anywhere since
    assert again.inputs == {"words": 2}
    finish(pipeline, spark)
    assert read(pipeline.directory("out")) == [*WORDS, *WORDS[2:]]
    assert [each["type"] for each in maps(pipeline)[2:4]] == ["reset", "reset"]
