"""What a newcomer sees when records or functions fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from pyspark.sql import DataFrame

from pillarbox import open_mailbox
from pillarbox.cli import pipeline as pipeline_command
from pillarbox.cli import run as command
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.failures import failures
from pillarbox.pipeline.query import Query
from pillarbox.pipeline.status import read_status
from pillarbox.spark.table import TableLog
from tests.spark.pipeline.support import finish, maps, read, write

MODULE = """
from pillarbox.pipeline import Pipeline

pipeline = Pipeline("shop", path="./state")
pipeline.log("words", int, url="file:./words")
pipeline.log("numbers", int)

@pipeline.stream(inputs="words", outputs="numbers")
def copy(words):
    return words
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    write(tmp_path / "words", [b"1", b"x", b"y"])
    made = Pipeline("p", path=tmp_path / "p")
    made.log("words", int, url=f"file:{tmp_path}/words")
    made.log("out", int)
    return made


def test_R85_failed_records_are_counted_where_people_look(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline_command, "LINE_SECONDS", 0.0)
    (tmp_path / "failing_shop.py").write_text(MODULE)
    target = "failing_shop:pipeline"
    write(tmp_path / "words", [b"1", b"x"])
    assert command(["pipeline", "run", target, "--now"]) == 0
    said = capsys.readouterr()
    assert "copy: done, 1 step, 2 rows, 1 failed" in said.out
    assert (
        f"1 record of copy failed; list them with 'pillarbox pipeline errors {target} copy'"
        in said.err
    )
    assert "of 2 records read" in said.err  # progress, though this is no terminal
    assert command(["pipeline", "status", target]) == 0
    assert "failed" in capsys.readouterr().out
    write(tmp_path / "words", [b"y", b"z"])
    assert command(["pipeline", "run", target, "--now"]) == 1
    assert "2 records of copy failed, including all records of 1 step" in capsys.readouterr().err
    assert command(["pipeline", "errors", target, "cpoy"]) == 1
    assert "no processor 'cpoy' in the pipeline; it has copy" in capsys.readouterr().err
    assert command(["pipeline", "peek", target, "errors-cpoy"]) == 1
    assert command(["pipeline", "run", target, "--now", "--only", "cpoy"]) == 1


def test_R85_a_step_in_which_every_message_of_a_mailbox_failed_is_a_failed_step(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mailbox_shop.py").write_text(MODULE)
    run = ["pipeline", "run", "mailbox_shop:pipeline", "--now"]
    with open_mailbox("file:./words", str) as words:
        words.send("x")
        words.receive()[0].acknowledge()  # an event that is not a message
    assert command(run) == 1
    assert "including all records of 1 step" in capsys.readouterr().err
    with open_mailbox("file:./words", str) as words:
        words.send_many(["1", "y"])
    assert command(run) == 0


def test_R85_more_failed_records_than_allowed_stop_the_run(pipeline: Pipeline, spark: Any) -> None:
    pipeline.stream(inputs="words", outputs="out", id="s")(lambda words: words)
    with pytest.raises(PipelineError, match="failed records: 2, more than the allowed 1"):
        finish(pipeline, spark, max_failed=1)
    known = read_status(pipeline.paths.status).processors["s"]
    assert (known.failed, known.restarts) == (2, 0)
    # The step is done, and the next run goes on after it.
    finish(pipeline, spark, max_failed=1)
    assert len(read(pipeline.directory("out"))) == 1
    assert len(read(pipeline.errors_directory("s"))) == 2


@pytest.mark.parametrize("mode", ["stateless", "stateful"])
def test_R85_an_unknown_column_fails_at_once_in_one_line(
    pipeline: Pipeline, spark: Any, mode: str
) -> None:
    @pipeline.stream(inputs="words", outputs="out", id="s", mode="update")
    def wrong(words: DataFrame) -> DataFrame:
        made = words.groupBy("body").count() if mode == "stateful" else words
        return made.select("amuont")

    with pytest.raises(PipelineError) as raised:
        finish(pipeline, spark)
    said = str(raised.value)
    assert "the stream 's'" in said
    assert "`amuont` cannot be resolved" in said
    assert "inputs: words: body, _index, _time" in said
    assert "\n" not in said
    assert read_status(pipeline.paths.status).processors["s"].restarts == 0
    assert maps(pipeline) == []


def test_R85_a_mistake_in_a_function_is_not_tried_again(pipeline: Pipeline, spark: Any) -> None:
    @pipeline.stream(inputs="words", outputs="out", id="s")
    def wrong(words: DataFrame) -> DataFrame:
        return wrods  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(PipelineError, match="NameError: name 'wrods' is not defined"):
        finish(pipeline, spark)
    assert read_status(pipeline.paths.status).processors["s"].restarts == 0


def run_alone(tmp_path: Path, module: str) -> subprocess.CompletedProcess[str]:
    """Run a pipeline as a user would, until there is nothing left to do."""
    (tmp_path / "quiet_shop.py").write_text(module)
    return subprocess.run(
        [sys.executable, "-m", "pillarbox.cli", "pipeline", "run", "quiet_shop:pipeline", "--now"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_R85_spark_starts_without_a_word(tmp_path: Path) -> None:
    write(tmp_path / "words", [b"1"])
    done = run_alone(tmp_path, MODULE)
    assert done.returncode == 0
    assert [x for x in done.stderr.splitlines() if "records read" not in x] == []
    assert done.stdout == "copy: done, 1 step, 1 row\n"


def test_R85_the_command_tells_of_an_unknown_column_without_a_stack_trace(tmp_path: Path) -> None:
    write(tmp_path / "words", [b"1"])
    done = run_alone(tmp_path, MODULE.replace("return words", "return words.select('bdoy')"))
    assert done.returncode == 1
    (line,) = [x for x in done.stderr.splitlines() if "records read" not in x]
    assert "`bdoy` cannot be resolved" in line
    assert ".scala" not in line


class Part(Struct):
    number: int
    value: Any


class Whole(Struct):
    name: str
    part: Part
    rest: list[Any]


@pytest.mark.parametrize("native", [True, False], ids=["batch job", "query"])
def test_R87_a_value_that_is_missing_inside_json_is_a_failure(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """A table keeps values of any type as JSON, and its files count no nulls in there."""
    monkeypatch.setattr(Query, "native", native)
    names = ("whole", "no number", "no rest")
    write(tmp_path / "in", [Whole(name, Part(1, "x"), [1]) for name in names])
    pipeline = Pipeline("p", path=tmp_path / "p")
    pipeline.log("in", Whole, url=f"file:{tmp_path}/in")
    pipeline.log("out", Whole)
    number = "IF(name = 'no number', CAST(NULL AS BIGINT), part.number)"
    pipeline.stream(inputs="in", outputs="out", id="s")(
        lambda rows: rows.selectExpr(
            "name",
            f"named_struct('number', {number}, 'value', part.value) AS part",
            "IF(name = 'no rest', CAST(NULL AS ARRAY<VARIANT>), rest) AS rest",
        )
    )
    finish(pipeline, spark)
    made = [row for _, row in TableLog(pipeline.directory("out")).rows()]
    assert [(row["name"], json.loads(row["rest"])) for row in made] == [("whole", {"v": [1]})]
    failed = [each for _, each in failures(pipeline.errors_directory("s"))]
    causes = {json.loads(each.body)["name"]: each.cause for each in failed}
    assert causes == {
        "no number": "the column 'part.number' is null",
        "no rest": "the column 'rest' is null",
    }


@pytest.mark.timeout(200)
def test_R87_what_can_not_be_read_of_an_input_that_no_output_needs_is_told(
    tmp_path: Path, pipeline: Pipeline, spark: Any
) -> None:
    """Spark never looks at that input then, and never tells what it saw there."""
    write(tmp_path / "others", [b"7", b"z"])
    pipeline.log("others", int, url=f"file:{tmp_path}/others")
    pipeline.stream(inputs=["words", "others"], outputs="out", id="s")(lambda words, _: words)
    finish(pipeline, spark)
    assert read(pipeline.directory("out")) == [b"1"]
    failed = [row for _, row in TableLog(pipeline.errors_directory("s")).rows()]
    assert sorted(row["body"] for row in failed) == [b"x", b"y", b"z"]
