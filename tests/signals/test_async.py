"""R111: signals in asyncio programs. Nothing confirmed is lost, whatever the handlers do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import shared_server
from tests.redis.world import new_name

BACKENDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "memory": ("memory:{name}", {}, 2_000),
    "file, os": ("file:{path}/{name}", {"durability": "os"}, 500),
    "file, fsync": ("file:{path}/{name}", {"durability": "fsync"}, 60),
    "redis": ("redis://127.0.0.1:{redis}/{name}", {}, 120),
    "broker": ("{broker}/{name}", {}, 120),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Any]]:
    with running_broker() as broker:
        yield {"broker": broker, "redis": shared_server().port}


def run(what: str, backend: str, path: Path, servers: dict[str, Any]) -> dict[str, Any]:
    url, options, rounds = BACKENDS[backend]
    place = url.format(name=new_name("signals"), path=path, **servers)
    done = subprocess.run(
        [sys.executable, "-m", "tests.signals.async_process", what, place,
         json.dumps(options), str(rounds)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("what", ["on the loop", "interrupting the loop"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_has_the_event_loop_send(
    backend: str, what: str, tmp_path: Path, servers: dict[str, Any]
) -> None:
    told = run(what, backend, tmp_path, servers)
    assert Counter(told["received"]) == Counter(told["sent"])
    assert told["handled"] > 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_that_blocks_in_the_midst_of_async_verbs(
    backend: str, tmp_path: Path, servers: dict[str, Any]
) -> None:
    told = run("blocking", backend, tmp_path, servers)
    assert Counter(told["received"]) == Counter(told["sent"])
    assert told["handled"] > 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_ctrl_c_in_an_async_program_loses_nothing_that_was_confirmed(
    backend: str, tmp_path: Path, servers: dict[str, Any]
) -> None:
    told = run("interrupting", backend, tmp_path, servers)
    assert told["interrupted"] >= 10
    assert set(told["sent"]) <= set(told["received"])
