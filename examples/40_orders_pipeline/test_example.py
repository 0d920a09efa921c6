"""The example runs, and running it again changes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.timeout(600)  # two drivers, each with a Java of its own
def test_R82_the_example_prints_what_its_readme_says(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(  # noqa: S603 - our own example
            [sys.executable, str(HERE / "main.py"), str(tmp_path / "shop")],
            capture_output=True,
            text=True,
            check=True,
            timeout=280,
        )
        readme = (HERE / "README.md").read_text()
        assert done.stdout in readme
        assert done.stdout.count("\n") == 3
