"""A processor whose id changes in the code: its state is named, and moved on demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pillarbox.cli import run as command
from pillarbox.log import Log
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.inspection import inspect
from pillarbox.pipeline.rename import rename
from pillarbox.pipeline.reset import reset
from tests.spark.pipeline.support import crash, finish, read, read_json, write

Make = Callable[[str], Pipeline]


class Count(msgspec.Struct):
    body: str
    count: int


@pytest.fixture
def counting(tmp_path: Path) -> Make:
    """A pipeline whose one processor, which keeps state, has this id."""
    write(tmp_path / "words", [b"a", b"b", b"\xff"])

    def make(processor_id: str) -> Pipeline:
        pipeline = Pipeline("p", path=tmp_path / "p")
        pipeline.log("words", str, url=f"file:{tmp_path}/words")
        pipeline.log("out", Count)

        @pipeline.stream(inputs="words", outputs="out", mode="update", id=processor_id)
        def count(words: Any) -> Any:
            return words.groupBy("body").count()

        return pipeline

    return make


def test_R84_a_renamed_processor_goes_on_with_its_state(
    counting: Make, spark: Any, tmp_path: Path
) -> None:
    finish(counting("old"), spark)
    write(tmp_path / "words", [b"a"])
    pipeline = counting("new")
    with pytest.raises(PipelineError, match="rename TARGET old new"):
        finish(pipeline, spark)
    rename(pipeline, "old", "new")
    assert [each.restart.action for each in inspect(pipeline)] == ["go on"]
    finish(pipeline, spark)
    counts = [(each["body"], each["count"]) for each in read_json(pipeline.directory("out"))]
    assert sorted(counts) == [("a", 1), ("a", 2), ("b", 1)]
    assert len(read(pipeline.errors_directory("new"))) == 1
    with Log.open(tmp_path / "words", readonly=True) as log:
        assert set(log.pins()) == {"pin:pipeline.p.new"}
    with pytest.raises(PipelineError, match="no state of a processor 'old'"):
        rename(pipeline, "old", "new")


def test_R84_a_step_that_was_interrupted_is_finished_before_a_rename(
    counting: Make, spark: Any
) -> None:
    crash(counting("old"), spark, "output")
    with pytest.raises(PipelineError, match="run the pipeline once with --now"):
        rename(counting("new"), "old", "new")
    finish(counting("old"), spark)
    rename(counting("new"), "old", "new")
    finish(counting("new"), spark)
    assert len(read(counting("new").directory("out"))) == 2


def test_R84_a_new_processor_in_the_place_of_another_begins_where_it_is_told(
    counting: Make, spark: Any
) -> None:
    finish(counting("old"), spark)
    pipeline = counting("new")
    reset(pipeline, ["new"], "earliest")
    finish(pipeline, spark)
    assert len(read(pipeline.directory("out"))) == 4


MODULE = """
from pillarbox.pipeline import Pipeline

pipeline = Pipeline("shop", path="./state")
pipeline.log("words", str, url="file:./words")
pipeline.log("long", str)
pipeline.stream(inputs="words", outputs="long", id="ID")(lambda words: words)
"""


def test_R84_status_names_the_state_that_a_rename_left(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, processor_id in (("shop_before", "old"), ("shop_after", "new")):
        (tmp_path / f"{name}.py").write_text(MODULE.replace("ID", processor_id))
    write(tmp_path / "words", [b"one"])
    assert command(["pipeline", "run", "shop_before:pipeline", "--now"]) == 0
    assert command(["pipeline", "status", "shop_after:pipeline"]) == 0
    said = capsys.readouterr().err
    assert "old has state but is not in the pipeline" in said
    assert command(["pipeline", "rename", "shop_after:pipeline", "old", "new"]) == 0
    assert "new continues where old stopped" in capsys.readouterr().out
    assert command(["pipeline", "status", "shop_after:pipeline"]) == 0
    said = capsys.readouterr()
    assert "not in the pipeline" not in said.err
    assert "new" in said.out
    assert "old" not in said.out
