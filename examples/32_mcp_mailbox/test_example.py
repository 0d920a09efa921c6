"""The example prints what its README says."""

from __future__ import annotations

import runpy
from pathlib import Path

HERE = Path(__file__).parent


def test_R96_an_agent_works_on_a_mailbox(tmp_path: Path) -> None:
    lines = runpy.run_path(str(HERE / "main.py"))["main"](f"file:{tmp_path}/orders")
    printed = (HERE / "README.md").read_text().split("```text\n")[1].split("```")[0]
    assert lines == printed.splitlines()
