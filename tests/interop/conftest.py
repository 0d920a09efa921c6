"""One `pillarbox serve` with keys and a disk, and the clients of others that talk to it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PLACE = ROOT / ".venv-interop"  # kept between runs; made anew when what is pinned changes
KEY_ID, SECRET, REGION = "AKIDINTEROP", "not/a+secret", "eu-central-1"

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY_ID,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens that lets in only who signs with the right key."""
    place = tmp_path_factory.mktemp("broker")
    (place / "pillarbox.toml").write_text(
        f'region = "{REGION}"\n[[keys]]\nid = "{KEY_ID}"\nsecret = "{SECRET}"\n'
    )
    command = [sys.executable, "-m", "pillarbox.cli", "serve", "--port", "0", "--data", "data"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            listening = server.stdout.readline().split()
            assert listening[:1] == ["listening"], listening
            yield listening[1]
            server.terminate()
            assert server.wait(30) == 0
        finally:
            server.kill()


@pytest.fixture(scope="session")
def environment(endpoint: str) -> dict[str, str]:
    """The environment of a client's process."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    return {**own, **ENVIRONMENT, "ENDPOINT": endpoint}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, text in ENVIRONMENT.items():
        monkeypatch.setenv(name, text)


@pytest.fixture(scope="session")
def old_python() -> Path:
    """A Python with an old botocore and the AWS CLI, from requirements/interop.lock."""
    lock = ROOT / "requirements" / "interop.lock"
    place = PLACE / "python"
    if _is_made(place, [lock]):
        return place / "bin" / "python"
    venv.create(place, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(lock)]
    _do([str(place / "bin" / "python"), *install])
    _mark(place, [lock])
    return place / "bin" / "python"


@pytest.fixture(scope="session")
def javascript() -> Path:
    """A directory with the scripts of tests/interop/js and what they import."""
    source = HERE / "js"
    pinned = [source / "package.json", source / "package-lock.json"]
    place = PLACE / "js"
    if not _is_made(place, pinned):
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed: the JavaScript clients can't be tried")
        place.mkdir(parents=True)
        for file in pinned:
            shutil.copy(file, place)
        _do(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=place)
        _mark(place, pinned)
    for script in source.glob("*.mjs"):
        shutil.copy(script, place)
    return place


def _is_made(place: Path, pinned: list[Path]) -> bool:
    mark = place / ".made-from"
    if mark.exists() and mark.read_text() == _digest(pinned):
        return True
    shutil.rmtree(place, ignore_errors=True)
    PLACE.mkdir(exist_ok=True)
    (PLACE / ".gitignore").write_text("*\n")
    return False


def _mark(place: Path, pinned: list[Path]) -> None:
    (place / ".made-from").write_text(_digest(pinned))


def _digest(pinned: list[Path]) -> str:
    text = b"".join(file.read_bytes() for file in pinned) + sys.version.encode()
    return hashlib.sha256(text).hexdigest()


def _do(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
