"""The wheel and the source archive: what is in them, and that they install and run."""

from __future__ import annotations

import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import pillarbox
from tests.environments import ROOT, python_with_only, wheel_of_pillarbox
from tests.install.support import run

SOURCES = {
    str(file.relative_to(ROOT / "src"))
    for file in (ROOT / "src").rglob("*")
    if file.is_file() and "__pycache__" not in file.parts
}


@pytest.fixture(scope="session")
def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="session")
def metadata(wheel: Path, names: set[str]) -> Message:
    (name,) = (each for each in names if each.endswith(".dist-info/METADATA"))
    return Parser().parsestr(zipfile.ZipFile(wheel).read(name).decode())


def test_R36_the_wheel_holds_every_source_file(names: set[str]) -> None:
    assert {name for name in names if ".dist-info/" not in name} == SOURCES


def test_R36_the_wheel_says_what_it_is(metadata: Message) -> None:
    assert metadata["Version"] == pillarbox.__version__
    urls = dict(each.split(", ") for each in metadata.get_all("Project-URL", []))
    assert {"Source", "Documentation", "Changelog", "Issues"} <= urls.keys()
    classifiers = metadata.get_all("Classifier", [])
    for python in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {python}" in classifiers


def test_R36_the_wheel_runs(with_cli: Path, tmp_path: Path) -> None:
    told = f"pillarbox {pillarbox.__version__}\n"
    assert run(with_cli, "-m", "pillarbox", "--version", cwd=tmp_path) == (0, told, "")
    script = str(with_cli.with_name("pillarbox"))
    assert run(with_cli, script, "send", "file:./data/orders", "tea", cwd=tmp_path)[0] == 0
    code, out, _ = run(with_cli, script, "receive", "file:./data/orders", cwd=tmp_path)
    assert (code, "tea" in out) == (0, True)


def test_R36_the_source_archive_makes_the_same_wheel(
    wheel: Path, names: set[str], tmp_path: Path
) -> None:
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    from_source = wheel_of_pillarbox(tmp_path / "dist", source=unpacked)
    assert set(zipfile.ZipFile(from_source).namelist()) == names
    python = python_with_only(tmp_path / "venv", from_source)
    assert run(python, "-c", "import pillarbox.mailbox.url", cwd=tmp_path) == (0, "", "")


def test_R36_every_extra_and_python_of_the_package_is_in_the_files_that_repeat_them(
    metadata: Message,
) -> None:
    readme = (ROOT / "README.md").read_text()
    table = readme[readme.index("| Extra |") : readme.index("## More")]
    for extra in metadata.get_all("Provides-Extra", []):
        assert f"`{extra}`" in table
    matrix = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    for python in ("3.11", "3.12", "3.13"):
        assert f'"{python}"' in matrix
