"""The figures in README and the documentation are those that were measured, and all of them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "tools" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(name: str, nanoseconds: float | None, note: str = "", **check: Any) -> dict[str, Any]:
    known = {"at_least": None, "at_most": None, "met": None}
    checks = [{**known, **check}] if check else []
    return {"name": name, "unit": "ns", "median": nanoseconds, "note": note, "checks": checks}


def test_R30_readme_and_the_page_say_what_was_measured(tool: ModuleType) -> None:
    assert tool.main(check=True) == 0, "try: python tools/figures.py"


def test_R30_every_race_that_readme_shows_was_measured(tool: ModuleType) -> None:
    measured = tool.load()
    assert {"core", "durable", "broker", "worker"} <= measured.keys()
    for suite, begins in tool.CHOSEN:
        if suite not in measured:
            continue  # and then README says nothing of it
        names = [race["name"] for race in measured[suite]["suites"][suite]]
        assert any(name.startswith(begins) for name in names), (suite, begins)


def test_R30_a_table_holds_every_contender_also_those_that_won_or_were_skipped(
    tool: ModuleType,
) -> None:
    rows = [
        row("Pillarbox", 2_000.0, value=0.5, what="x queue.Queue", at_least=1.0, met=False),
        row("queue.Queue", 1_000.0),
        row("kombu", None, "skipped: not installed"),
    ]
    machine = dict.fromkeys(("cpu", "python", "system", "pillarbox"), "some")
    machine |= {"cores": 2, "date": "2026-11-16T00:00", "load": 0.1}
    race = {"name": "full cycle, one thread", "rows": rows}
    suites = {"core": {"machine": machine, "suites": {"core": [race]}}}

    assert "| **500,000** | queue.Queue 1,000,000 |" in tool.summary(suites)
    page = tool.page(suites)
    assert "0.50 x queue.Queue | at least 1: **missed**" in page
    assert "| kombu | - | - |  |  | skipped: not installed |" in page


def test_R30_a_quick_run_is_no_measurement(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "core.json").write_text(json.dumps({"machine": {"quick": True}, "suites": {}}))
    with pytest.raises(SystemExit, match="quick"):
        tool.load(tmp_path)
