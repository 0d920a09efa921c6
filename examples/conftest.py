"""What the tests of the examples share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def prints_what_its_readme_says() -> Callable[..., None]:
    """Run an example as its README says, and compare."""

    def check(here: Path, *arguments: object) -> None:
        done = subprocess.run(  # noqa: S603 - our own example
            [sys.executable, "-W", "error", str(here / "main.py"), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"```text\n{done.stdout}```" in (here / "README.md").read_text()

    return check
