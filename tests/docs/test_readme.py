"""Every Python block in the README and the documentation runs, as a reader would run it.

In the README and on the home page, each block stands alone: it runs in a new namespace, and then
once more in the same one, as if pasted twice. On the other pages the blocks continue each other.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
import pytest

from pillarbox.broker import Config
from pillarbox.cli import app as pillarbox

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
STAND_ALONE = (ROOT / "README.md", ROOT / "docs" / "index.md")

IMPORT = re.compile(r"^\s*(?:from \S+ )?import \w", re.MULTILINE)
NEED_A_CLUSTER = {"docs/reference/spark.md"}  # whose blocks the tests of Spark have as their own


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if BLOCK.search(page.read_text())]


def blocks_of(page: Path) -> list[CodeType]:
    """The Python blocks of a page, compiled so that a traceback shows the line of the page."""
    text, found = page.read_text(), []
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(2))
        found.append(compile("\n" * line + textwrap.dedent(block[2]), str(page), "exec"))
    return found


TELL_A_STORY = [page for page in pages() if page not in STAND_ALONE]


@pytest.mark.parametrize("page", TELL_A_STORY, ids=lambda page: str(page.relative_to(ROOT)))
def test_R30_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes is gone afterwards
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in blocks_of(page):
        exec(code, names)


ALONE = [(page, number) for page in STAND_ALONE for number in range(len(blocks_of(page)))]


@pytest.mark.parametrize(("page", "number"), ALONE, ids=lambda it: getattr(it, "name", it))
def test_R30_each_example_of_the_readme_runs_alone_and_twice(
    page: Path, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for _ in range(2):
        exec(blocks_of(page)[number], names)


def test_R30_the_readme_and_the_tutorial_have_examples() -> None:
    with_examples = {str(page.relative_to(ROOT)) for page in pages()}
    assert {"README.md", "docs/tutorial/index.md"} <= with_examples


def every_page() -> list[Path]:
    return [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def fences(page: Path) -> list[tuple[str, str]]:
    """The name and the text of every block, however far it is indented."""
    text = page.read_text()
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    assert len(found) * 2 == len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE)), page
    return [(name, textwrap.dedent(block)) for _, name, block in found]


def test_R30_no_block_of_code_is_left_out() -> None:
    """Every block has a name, every `python` one is run, and no other holds Python."""
    run = 0
    for page in every_page():
        blocks = fences(page)
        assert {name for name, _ in blocks} <= {"python", "sh", "text", "toml"}, page
        wanted = [block for name, block in blocks if name == "python"]
        assert len(wanted) == len(blocks_of(page)), page
        run += len(wanted)
        if str(page.relative_to(ROOT)) not in NEED_A_CLUSTER:
            hidden = [block for name, block in blocks if name == "text" and IMPORT.search(block)]
            assert hidden == [], page
    assert run >= 60


def test_R30_every_command_in_the_documentation_is_understood() -> None:
    """Parsed, not run: a wrong verb or flag would be refused."""
    seen = 0
    for page in every_page():
        for name, block in fences(page):
            for line in block.replace("\\\n", "").splitlines() if name == "sh" else ():
                found = re.search(r"(?:^|\| |bin/)pillarbox (.*)", line)
                if found is not None:
                    words = shlex.split(re.split(r" [|>&] ?", found[1])[0], comments=True)
                    assert words == ["--help"] or parsed(words), (page, line)
                    seen += 1
    assert seen >= 20


def parsed(words: list[str]) -> bool:
    return bool(pillarbox.parse_args(words, exit_on_error=False, print_error=False))


def test_R59_every_configuration_in_the_documentation_is_valid() -> None:
    seen = [
        msgspec.convert(tomllib.loads(block), Config)
        for page in every_page()
        for name, block in fences(page)
        if name == "toml"
    ]
    assert seen


def test_R30_the_generated_pages_say_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "reference.py", "--check"],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}try: python tools/reference.py"
