"""The servers of these tests, and how their programs are run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import shared_server
from tests.redis.world import new_name

SECONDS_MAX = 110

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Any]]:
    with running_broker() as broker:
        yield {"broker": broker, "redis": shared_server().port}


@pytest.fixture
def run(tmp_path: Path, servers: dict[str, Any]) -> Run:
    """Run a program of this folder on a new mailbox; returns the JSON that it prints."""

    def run(program: str, what: str, url: str, options: dict[str, Any], *rest: object) -> Any:
        place = url.format(name=new_name("signals"), path=tmp_path, **servers)
        words = [what, place, json.dumps(options), *map(str, rest)]
        process = subprocess.run(
            [sys.executable, "-m", f"tests.signals.{program}", *words],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run
