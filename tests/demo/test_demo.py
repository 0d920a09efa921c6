"""`make run`: the demo does its work and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_R83_the_demo_ends_with_exact_totals_although_its_pipeline_was_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env=os.environ | {"ONCE": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("killed (SIGKILL)", "redriven", "Ada", "Brian", "totals exact", "urgent"):
        assert expected in done.stdout


def test_R83_the_demo_leaves_nothing_behind_when_its_terminal_is_closed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        assert "dashboard" in demo.stdout.readline()
        os.killpg(demo.pid, signal.SIGHUP)  # as the kernel does
        demo.stdout.read()  # ends when no process of the demo is left
    assert demo.returncode == 130
    assert list(tmp_path.glob("pillarbox-demo-*")) == []
