"""R110: looking at a pipeline, its logs and its status changes no byte of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox import Log
from pillarbox.cli import run
from pillarbox.pipeline.pipeline import load
from pillarbox.pipeline.status import StatusFile, first_status
from tests.looking.support import bytes_in

SHOP = """
from pillarbox.pipeline import Pipeline
pipeline = Pipeline("shop", path="./state")
pipeline.log("orders")
pipeline.log("totals")
pipeline.stream(inputs="orders", outputs="totals", id="add_up")(lambda orders: orders)
"""
LOOKS = [
    ["status", "looked_at_shop:pipeline"],
    ["status", "looked_at_shop:pipeline", "--json"],
    ["graph", "looked_at_shop:pipeline", "--live"],
    ["inspect", "looked_at_shop:pipeline", "--json"],
    ["errors", "looked_at_shop:pipeline", "add_up"],
]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pipeline whose run has read 3 of 5 orders, and was killed then."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "looked_at_shop.py").write_text(SHOP)
    pipeline = load("looked_at_shop:pipeline")
    for name in ("orders", "totals"):
        directory = Path(pipeline.directory(name))
        directory.parent.mkdir(parents=True, exist_ok=True)
        with Log.open(directory) as log:
            log.append_many([b"{}"] * 5)
    Log.open(tmp_path / "state" / "backing").close()
    status = StatusFile(
        pipeline.paths.status, first_status("shop", "local[2]", pipeline.graph, {"add_up"})
    )
    status.of("add_up").read = {"orders": 3}
    status.save()
    yield tmp_path
    sys.modules.pop("looked_at_shop", None)


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_R110_a_command_that_looks_at_a_pipeline_changes_nothing(
    shop: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = bytes_in(shop)
    assert run(["pipeline", *command]) == 0, capsys.readouterr().err
    assert bytes_in(shop) == before
