"""`pillarbox pipeline` where no Spark is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pillarbox.cli import pipeline as pipeline_command
from pillarbox.cli import run
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.failures import Failure
from pillarbox.pipeline.pipeline import load

GOOD = """
from pillarbox.pipeline import Pipeline
pipeline = Pipeline("shop", path="./state")
pipeline.log("a")
pipeline.log("b")
pipeline.stream(inputs="a", outputs="b", id="s")(lambda a: a)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_R80_the_graph_is_drawn(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "good_shop.py").write_text(GOOD)
    assert run(["pipeline", "graph", "good_shop:pipeline"]) == 0
    assert 'log_a[("a")] --> processor_s["s"]' in capsys.readouterr().out
    assert run(["pipeline", "graph", "good_shop.py", "--svg", "shop.svg"]) == 0
    assert (here / "shop.svg").read_text().startswith("<svg")


def test_R80_a_failed_record_is_one_whole_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "failed_shop.py").write_text(GOOD)
    failure = Failure(processor="s", cause="bad\n\x1b[31m", log="a", index=7, body=b"x" * 2_000)
    monkeypatch.setattr(pipeline_command, "failures", lambda _: [(0, failure)])
    assert run(["pipeline", "errors", "failed_shop:pipeline", "s"]) == 0
    assert capsys.readouterr().out == f"0  a 7  bad\\n\\x1b[31m  {'x' * 2_000}\n"


def test_R80_each_problem_is_told_in_a_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bad_shop.py").write_text(
        GOOD.replace('outputs="b"', 'outputs="a"') + "pipeline.log('a')"
    )
    assert run(["pipeline", "graph", "bad_shop:pipeline"]) == 1
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 3, told
    assert any("cycle" in line for line in told)


def test_R80_running_needs_the_logs_to_be_there(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "early_shop.py").write_text(GOOD)
    assert run(["pipeline", "run", "early_shop:pipeline", "--now"]) == 1
    assert "s would read the log 'a', but there is none" in capsys.readouterr().err
    assert run(["pipeline", "inspect", "early_shop:pipeline"]) == 1
    assert "run it first" in capsys.readouterr().err
    assert run(["pipeline", "peek", "early_shop:pipeline", "b"]) == 1
    assert "run it first" in capsys.readouterr().err


def test_R88_a_store_that_does_not_answer_to_who_looks_ends_no_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processors try again; the command only wanted to show how far they are."""

    def ends(_: object) -> dict[str, int]:
        asked.append(1)
        raise OSError("the store can't be reached")

    class Running:
        def __init__(self, **_: object) -> None:
            self.status = SimpleNamespace(status=SimpleNamespace(processors={}))

        def wait(self, timeout: float) -> bool:
            return len(asked) == 3

    asked: list[int] = []
    (here / "far_shop.py").write_text(GOOD)
    monkeypatch.setattr(pipeline_command, "ends", ends)
    monkeypatch.setattr(Pipeline, "run", lambda _, **options: Running(**options))
    assert run(["pipeline", "run", "far_shop:pipeline", "--now"]) == 0


def test_R80_a_target_that_is_not_there(here: Path) -> None:
    with pytest.raises(PipelineError, match="no module 'nowhere'"):
        load("nowhere:pipeline")
    (here / "two_shops.py").write_text(GOOD + "other = Pipeline('other')\n")
    with pytest.raises(PipelineError, match="give the name of a pipeline in"):
        load("two_shops")
    with pytest.raises(PipelineError, match=r"there is no pipeline .*; it has \w+"):
        load("two_shops:Pipeline")
    with pytest.raises(PipelineError, match="':pipeline' names no module"):
        load(":pipeline")
    (here / "tea_shop.py").write_text("import tea")
    with pytest.raises(ModuleNotFoundError, match="'tea'"):
        load("tea_shop")
