"""The example says what its README says."""

from __future__ import annotations

import runpy
from pathlib import Path

HERE = Path(__file__).parent


def test_R97_the_agents_come_to_their_end(tmp_path: Path) -> None:
    main = runpy.run_path(str(HERE / "main.py"))["main"]
    said = main(tmp_path / "bus")
    printed = (HERE / "README.md").read_text().split("```text\n")[1].split("```")[0]
    expected = printed.splitlines()
    assert (said[0], said[-1]) == (expected[0], expected[-1])
    assert sorted(said) == sorted(expected), "the reminder may overtake the draft"
