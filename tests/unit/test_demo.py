"""`make run`: the demo does its work and says so."""

from __future__ import annotations

import os
import subprocess
import sys


def test_R30_the_demo_runs_one_round_and_shows_its_table() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pillarbox.demo"],
        env=os.environ | {"ONCE": "1", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for expected in ("in flight", "redriven", "Ada", "Brian", "800 of 800 done", "urgent"):
        assert expected in done.stdout
