"""A signal handler may use a mailbox on any backend: it works or is refused, and harms nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import shared_server
from tests.redis.world import new_name

SECONDS_MAX = 120

# Where, with which options, and how many rounds are enough for some hundred interrupts.
BACKENDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "memory": ("memory:{name}", {}, 20_000),
    "file, memory": ("file:{path}/{name}", {"durability": "memory"}, 3_000),
    "file, os": ("file:{path}/{name}", {"durability": "os"}, 3_000),
    "file, fsync": ("file:{path}/{name}", {"durability": "fsync"}, 300),
    "redis": ("redis://127.0.0.1:{redis}/{name}", {}, 700),
    "broker": ("{broker}/{name}", {}, 700),
    "sqs": ("sqs+{broker}/{name}", {"create": True}, 60),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker())
        yield {"broker": broker, "redis": shared_server().port}


def run(what: str, backend: str, path: Path, servers: dict[str, Any], way: str) -> dict[str, Any]:
    url, options, rounds = BACKENDS[backend]
    place = url.format(name=new_name("signals"), path=path, **servers)
    process = subprocess.run(
        [sys.executable, "-m", "tests.signals.handler_process", what, place,
         json.dumps(options), str(rounds if what == "using" else 20), way],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    told: dict[str, Any] = json.loads(process.stdout)
    return told


@pytest.mark.parametrize("way", ["quick", "general"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_that_sends_and_receives(
    backend: str, way: str, tmp_path: Path, servers: dict[str, Any]
) -> None:
    told = run("using", backend, tmp_path, servers, way)
    assert Counter(told["received"]) == Counter(told["sent"])
    assert told["served"] + told["refused"] > 10
    assert told["served"] > 0, "where nothing is in its way, it works"


@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_that_closes_the_mailbox(
    backend: str, tmp_path: Path, servers: dict[str, Any]
) -> None:
    told = run("closing", backend, tmp_path, servers, "quick")
    assert told["woken"], "the thread that waited for a message was left alone"
    assert not Counter(told["sent"]) - Counter(told["received"]), "a confirmed message is lost"


@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_while_the_main_thread_waits_for_a_message(
    backend: str, tmp_path: Path, servers: dict[str, Any]
) -> None:
    told = run("parked", backend, tmp_path, servers, "quick")
    assert told["served"] > 0, "nothing is in its way while a receive is parked"
    assert Counter(told["received"]) == Counter(told["sent"])
    assert told["seconds"] < 10, "closing did not wake it"


def test_R111_control_a_lock_that_does_not_know_its_owner_is_given_back_twice() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.signals.handler_process",
         "control", "memory:signals", "{}", "20000", "general"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )  # fmt: skip
    assert process.returncode or int(process.stdout) > 1
