"""One `pillarbox serve` with keys and a disk, and the clients of others that talk to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import PLACE, ROOT, do, is_made, mark, python_with

HERE = Path(__file__).parent
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
    return python_with("python", ROOT / "requirements" / "interop.lock")


@pytest.fixture(scope="session")
def javascript() -> Path:
    """A directory with the scripts of tests/interop/js and what they import."""
    source = HERE / "js"
    pinned = [source / "package.json", source / "package-lock.json"]
    place = PLACE / "js"
    if not is_made(place, pinned):
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed: the JavaScript clients can't be tried")
        place.mkdir(parents=True)
        for file in pinned:
            shutil.copy(file, place)
        do(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=place)
        mark(place, pinned)
    for script in source.glob("*.mjs"):
        shutil.copy(script, place)
    return place
