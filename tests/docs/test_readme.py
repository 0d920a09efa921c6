"""Every Python block in the README and the documentation runs, as a reader would run it.

The blocks of one page share their names, in order, so that a page can tell a story.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_R30_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes is gone afterwards
    text = page.read_text()
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1))
        code = compile("\n" * line + block[1], str(page), "exec")
        exec(code, names)


def test_R30_the_readme_and_the_tutorial_have_examples() -> None:
    with_examples = {str(page.relative_to(ROOT)) for page in pages()}
    assert {"README.md", "docs/tutorial/index.md"} <= with_examples


def test_R30_no_block_of_code_is_left_out_by_its_name() -> None:
    """A fence named `py` or `pycon` would not be run."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        named = set(re.findall(r"^ *```(\w+)", page.read_text(), re.MULTILINE))
        assert named <= {"python", "sh", "text", "toml"}, page
