"""Run a Python of another environment, and see what it says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def run(python: Path, *words: str, cwd: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; our own packages are out of its sight."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), *words],
        cwd=cwd,
        env=environment | {"COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
