"""What the README tells its readers to save in a file and to run in a shell does what it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial" / "pipeline.md").read_text()


def saved(name: str, folder: Path, page: str = README) -> list[str]:
    """Save the block of this name; returns the lines of the shell block that follows it."""
    found = re.search(
        rf"Save this as\s`{name}`:\n\n```python\n(.*?)```\n.*?```sh\n(.*?)```", page, re.DOTALL
    )
    assert found is not None
    (folder / name).write_text(found[1])
    return found[2].splitlines()


def shell(line: str, folder: Path) -> str:
    ran = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment(),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def environment() -> dict[str, str]:
    programs = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


def commands(lines: list[str]) -> list[str]:
    return [line.partition("  #")[0].rstrip() for line in lines]


def test_R88_the_pipeline_of_the_readme_runs_and_its_output_can_be_read(tmp_path: Path) -> None:
    """Its tutorial does the same, and a little more: the README is a part of that."""
    of_readme = commands(saved("shop.py", tmp_path))
    program = (tmp_path / "shop.py").read_text()
    *before, peek = saved("shop.py", tmp_path, TUTORIAL)
    assert (tmp_path / "shop.py").read_text() == program
    assert set(of_readme) <= {*commands(before), *commands([peek])}
    for line in before:
        shell(line, tmp_path)
    promised = json.loads(re.search(r"here (\{.*\})", peek)[1])  # type: ignore[index]
    (row,) = map(json.loads, shell(peek, tmp_path).splitlines())
    assert {name: row[name] for name in promised} == promised

    (path,) = {*re.findall(r'polars\.read_delta\("(.*?)"\)', README + TUTORIAL)}
    table = polars.read_delta(str(tmp_path / path))
    assert table.select("tea", "grams").rows(named=True) == [promised]


def test_R103_the_worker_of_the_readme_gets_what_its_sender_sent(tmp_path: Path) -> None:
    send, work = saved("tasks.py", tmp_path)
    shell(send, tmp_path)
    with subprocess.Popen(
        ["bash", "-c", f"exec {work}"], cwd=tmp_path, env=environment() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == "packing 500 g for Ada, London\n"
        running.send_signal(signal.SIGTERM)
        running.stdout.read()
    assert running.returncode == 0
