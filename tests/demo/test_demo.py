"""`make run`: the demo does its work and says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.timeout(600)
def test_R83_the_demo_ends_with_exact_totals_although_its_pipeline_was_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pillarbox.demo"],
        env=os.environ | {"ONCE": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("killed (SIGKILL)", "redriven", "Ada", "Brian", "totals exact", "urgent"):
        assert expected in done.stdout
