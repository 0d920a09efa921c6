"""Environments beside the project's own, for what would be in its way there.

They are kept between runs in `.venv-interop`, and made anew when what is pinned changes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv-interop"


def python_with(name: str, lock: Path, *, and_ours: bool = False) -> Path:
    """A Python with the packages of a lock file; behind them, if wanted, all of this one's."""
    place = PLACE / name
    python = place / "bin" / "python"
    if is_made(place, [lock]):
        return python
    venv.create(place, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(lock)]
    do([str(python), *install])
    if and_ours:
        version = f"python{sysconfig.get_python_version()}"
        ours = place / "lib" / version / "site-packages" / "ours.pth"
        ours.write_text(f"{sysconfig.get_paths()['purelib']}\n{ROOT / 'src'}\n")
    mark(place, [lock])
    return python


def is_made(place: Path, pinned: list[Path]) -> bool:
    """Whether it is there, made from these files; if not, nothing is there afterwards."""
    made_from = place / ".made-from"
    if made_from.exists() and made_from.read_text() == _digest(pinned):
        return True
    shutil.rmtree(place, ignore_errors=True)
    PLACE.mkdir(exist_ok=True)
    (PLACE / ".gitignore").write_text("*\n")
    return False


def mark(place: Path, pinned: list[Path]) -> None:
    """It is made, from these files."""
    (place / ".made-from").write_text(_digest(pinned))


def _digest(pinned: list[Path]) -> str:
    text = b"".join(file.read_bytes() for file in pinned) + sys.version.encode()
    return hashlib.sha256(text).hexdigest()


def do(command: list[str], cwd: Path | None = None) -> None:
    """Run a command; what it said is in the error if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


def wheel_of_pillarbox(folder: Path, source: Path = ROOT) -> Path:
    """The wheel, built as a release would build it; the source archive lies beside it."""
    build = "import sys; from hatchling.build import {0}; {0}(sys.argv[1])"
    for kind in ("build_sdist", "build_wheel"):
        do([sys.executable, "-c", build.format(kind), str(folder)], cwd=source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def python_with_only(place: Path, wheel: Path, *extras: str) -> Path:
    """A new Python with this wheel, and what it and these extras require: nothing else.

    The required packages are copied from our own environment, so nothing is downloaded.
    """
    venv.create(place)
    python = place / "bin" / "python"
    pip = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    do([sys.executable, *pip, str(wheel)])
    target = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    for found in sorted(_required("pillarbox", {"", *extras}, set())):
        for file in metadata.files(found) or []:
            if ".." not in file.parts:  # scripts
                copy = target / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), copy)
    return python


def _required(name: str, extras: set[str], seen: set[str]) -> set[str]:
    """The names of what a package needs, and of what these need in turn."""
    for text in metadata.requires(name) or []:
        needed = Requirement(text)
        marker = needed.marker
        wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if wanted and needed.name not in seen:
            seen.add(needed.name)
            _required(needed.name, {"", *needed.extras}, seen)
    return seen
