"""Running for long: stopping, failing, starting again, two at once, the command line."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from pillarbox.cli import run as command
from pillarbox.pipeline import Pipeline, PipelineError, PipelineRunningError, runner
from pillarbox.pipeline.backing import FileBackingLog
from pillarbox.pipeline.status import read_status
from tests.spark.pipeline.support import finish, maps, read, write


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    write(tmp_path / "words", [b"one", b"two"])
    made = Pipeline("p", path=tmp_path / "p")
    made.log("words", str, url=f"file:{tmp_path}/words")
    made.log("out", str)
    return made


def test_R88_a_graceful_stop_lets_the_step_end(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    pipeline.stream(inputs="words", outputs="out", id="s")(lambda words: words)
    inside, go_on = threading.Event(), threading.Event()

    def window(act: str) -> None:
        if act == "attempt":
            inside.set()
            assert go_on.wait(100)

    running = pipeline.run(spark, on_phase=window)
    assert inside.wait(100)
    with pytest.raises(PipelineRunningError):
        pipeline.run(spark)
    stopper = threading.Thread(target=running.stop)
    stopper.start()
    assert read(pipeline.directory("out")) == []
    go_on.set()
    stopper.join(100)
    assert running.wait(1)
    assert read(pipeline.directory("out")) == [b"one", b"two"]
    assert Path(pipeline.paths.checkpoint("s"), "commits", "0").exists()
    assert read_status(pipeline.paths.status).processors["s"].state == "stopped"
    before = maps(pipeline)
    write(tmp_path / "words", [b"three"])
    finish(pipeline, spark)
    assert len(maps(pipeline)) == len(before) + 2  # nothing was run again
    assert read(pipeline.directory("out")) == [b"one", b"two", b"three"]


def test_R85_a_processor_that_fails_is_started_again(pipeline: Pipeline, spark: Any) -> None:
    tries: list[int] = []

    @pipeline.sink(inputs="words")
    def flaky(batch: DataFrame, step: Any) -> None:
        tries.append(step.number)
        if len(tries) < 3:
            raise OSError("no answer")

    pipeline.run(spark, available_now=True, retries=2).wait(100)
    assert tries == [0, 0, 0]
    assert read_status(pipeline.paths.status).processors["flaky"].restarts == 2


def test_R85_a_processor_that_keeps_failing_stops_the_pipeline_and_is_named(
    pipeline: Pipeline, spark: Any
) -> None:
    @pipeline.sink(inputs="words")
    def broken(batch: DataFrame, step: Any) -> None:
        raise OSError("no answer")

    with pytest.raises(PipelineError, match=r"sink 'broken' .* no answer.*it resumes there"):
        finish(pipeline, spark, retries=0)
    assert read_status(pipeline.paths.status).processors["broken"].state == "failed"


def test_R85_a_run_ends_whatever_its_end_meets(
    pipeline: Pipeline, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full, or a store that is out of reach, say."""
    pipeline.stream(inputs="words", outputs="out", id="s")(lambda words: words)

    def close(self: FileBackingLog) -> None:
        close_log(self)
        raise OSError("no space left on device")

    close_log = FileBackingLog.close
    monkeypatch.setattr(FileBackingLog, "close", close)
    finish(pipeline, spark)
    monkeypatch.undo()
    finish(pipeline, spark)
    assert read(pipeline.directory("out")) == [b"one", b"two"]


def test_R85_a_worker_that_comes_up_too_late_is_started_more_often_than_others(
    pipeline: Pipeline, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives it ten seconds, which a busy machine may not manage for minutes."""
    monkeypatch.setattr(runner, "_BACKOFF_SECONDS", 0.0)
    tries: list[int] = []

    @pipeline.sink(inputs="words")
    def late(batch: DataFrame, step: Any) -> None:
        tries.append(step.number)
        if len(tries) < 8:
            raise OSError("Python worker failed to connect back.")

    pipeline.run(spark, available_now=True, retries=0).wait(300)
    assert len(tries) == 8


def test_R80_a_wrong_column_is_named_before_anything_is_written(
    pipeline: Pipeline, spark: Any
) -> None:
    pipeline.stream(inputs="words", outputs="out", id="s")(lambda words: words.select("_index"))
    with pytest.raises(PipelineError, match="whose bodies have body; select exactly these"):
        finish(pipeline, spark)
    assert maps(pipeline) == []


MODULE = """
from pillarbox.pipeline import Pipeline

pipeline = Pipeline("shop", path="./state")
pipeline.log("words", str, url="file:./words")
pipeline.log("long", str)

@pipeline.stream(inputs="words", outputs="long")
def longest(words):
    return words.where("length(body) > 3")
"""


def test_R80_the_command_line_looks_at_a_pipeline_that_has_run(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_for_cli.py").write_text(MODULE)
    write(tmp_path / "words", [b"one", b"three", b"\xff"])
    target = "shop_for_cli:pipeline"
    assert command(["pipeline", "status", target]) == 1
    assert "has never run" in capsys.readouterr().err
    assert command(["pipeline", "run", target, "--now"]) == 0
    assert "longest: done, 1 step, 3 rows" in capsys.readouterr().out
    assert command(["pipeline", "status", target, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["running"], status["lag"]) == (False, {"longest": {"words": 0}})
    assert command(["pipeline", "status", target]) == 0
    assert "words 0" in capsys.readouterr().out
    assert command(["pipeline", "inspect", target, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["restart"]["action"], found["failures"]) == ("go on", 1)
    assert command(["pipeline", "errors", target, "longest", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["body"] == "ff"
    assert command(["pipeline", "graph", target, "--live"]) == 0
    assert '-->|"lag 0"|' in capsys.readouterr().out
    assert command(["pipeline", "graph", target, "--svg", "shop.svg"]) == 0
    assert Path("shop.svg").read_text().startswith("<svg")
    assert command(["pipeline", "reset", target, "longest", "--to", "1"]) == 0
    assert "starts at words 1, as generation 1" in capsys.readouterr().out
    assert command(["pipeline", "errors", target, "longest", "--redrive"]) == 0
    assert "1 record " in capsys.readouterr().out
