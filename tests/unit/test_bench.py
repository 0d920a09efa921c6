"""The benchmarks run: a smoke test with small numbers, whatever the figures are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_R30_the_benchmarks_of_core_run_and_save_their_figures(tmp_path: Path) -> None:
    path = tmp_path / "core.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "core", "--quick", "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    saved = json.loads(path.read_text())
    assert saved["machine"]["quick"] is True
    names = [benchmark["name"] for benchmark in saved["suites"]["core"]]
    assert "full cycle, one thread" in names
    assert len(names) == len(set(names)) >= 5


def test_R30_an_unknown_suite_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "nonsense"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert "core" in done.stderr
