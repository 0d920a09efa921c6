"""R111: signals in asyncio programs. Nothing confirmed is lost, whatever the handlers do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.signals.conftest import Run

BACKENDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "memory": ("memory:{name}", {}, 2_000),
    "file, os": ("file:{path}/{name}", {"durability": "os"}, 500),
    "file, fsync": ("file:{path}/{name}", {"durability": "fsync"}, 60),
    "redis": ("redis://127.0.0.1:{redis}/{name}", {}, 120),
    "broker": ("{broker}/{name}", {}, 120),
}


@pytest.mark.parametrize("what", ["on the loop", "interrupting the loop"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_has_the_event_loop_send(backend: str, what: str, run: Run) -> None:
    told = run("async_process", what, *BACKENDS[backend])
    assert Counter(told["received"]) == Counter(told["sent"])
    assert told["handled"] > 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_that_blocks_in_the_midst_of_async_verbs(backend: str, run: Run) -> None:
    told = run("async_process", "blocking", *BACKENDS[backend])
    assert Counter(told["received"]) == Counter(told["sent"])
    assert told["handled"] > 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_ctrl_c_in_an_async_program_loses_nothing_that_was_confirmed(
    backend: str, run: Run
) -> None:
    told = run("async_process", "interrupting", *BACKENDS[backend])
    assert told["interrupted"] >= 10
    assert set(told["sent"]) <= set(told["received"])
