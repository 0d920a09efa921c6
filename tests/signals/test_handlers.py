"""A signal handler may use a mailbox on any backend: it works or is refused, and harms nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.signals.conftest import Run

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


ROUNDS = 20


@pytest.mark.parametrize("way", ["quick", "general"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_that_sends_and_receives(backend: str, way: str, run: Run) -> None:
    told = run("handler_process", "using", *BACKENDS[backend], way)
    assert Counter(told["received"]) == Counter(told["sent"])
    assert told["served"] + told["refused"] > 10
    assert told["served"] > 0, "where nothing is in its way, it works"


@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_that_closes_the_mailbox(backend: str, run: Run) -> None:
    told = run("handler_process", "closing", *BACKENDS[backend][:2], ROUNDS, "quick")
    assert told["woken"], "the thread that waited for a message was left alone"
    assert not Counter(told["sent"]) - Counter(told["received"]), "a confirmed message is lost"


@pytest.mark.parametrize("backend", BACKENDS)
def test_R111_a_handler_while_the_main_thread_waits_for_a_message(backend: str, run: Run) -> None:
    told = run("handler_process", "parked", *BACKENDS[backend][:2], ROUNDS, "quick")
    assert told["served"] > 0, "nothing is in its way while a receive is parked"
    assert Counter(told["received"]) == Counter(told["sent"])
    assert told["seconds"] < 10, "closing did not wake it"


def test_R111_control_a_lock_that_does_not_know_its_owner_is_given_back_twice(run: Run) -> None:
    url, options, rounds = BACKENDS["memory"]
    try:
        tokens = run("handler_process", "control", url, options, rounds, "general")
    except AssertionError:  # two threads at work at once may also crash it
        return
    assert tokens > 1
