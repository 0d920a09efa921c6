"""R111: `stop` and `shutdown` in a signal handler of the user's own program."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pillarbox import InMemoryMailbox
from pillarbox.worker import Worker
from tests.interrupts import LAST, handled

MODULES = ("pillarbox.worker", "threading")
POINTS_MIN = 40
HANGS_AFTER_SECONDS = 20


async def coroutine(body: str) -> None: ...


def run(
    at: int, kind: Callable[..., Any], stop: Callable[[Worker[str]], object], wait: float
) -> Any:
    """Run a worker whose `run` is interrupted at this point; None if it hangs."""
    box = InMemoryMailbox("box", str)
    box.send_many(["a", "b"])
    worker = Worker(box, kind)
    reached: list[bool] = []

    def work() -> None:
        reached.append(
            handled(lambda: worker.run(max_receives=1), at, lambda: stop(worker), MODULES)
        )

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(wait)
    if not reached:
        return None
    assert box.stats().in_flight == 0
    return reached[0]


@pytest.mark.parametrize("kind", [print, coroutine], ids=["thread", "task"])
def test_R111_a_handler_may_stop_a_worker_wherever_it_interrupts_run(kind: Any) -> None:
    at = 0
    while reached := run(at, kind, Worker.stop, HANGS_AFTER_SECONDS):
        at += 1
    assert reached is False, f"it hangs after point {at}: {LAST}"
    assert at > POINTS_MIN


def test_R111_a_stop_that_takes_the_lock_of_the_pool_would_hang() -> None:
    """Control."""
    at = 0
    while reached := run(at, print, lambda worker: worker._pool.stop(), 2):
        at += 1
    assert reached is None


PROGRAM = """
import random, signal, sys
from pillarbox import InMemoryMailbox, RequestClient
from pillarbox.bus import BusProcessor, MessageBus
from pillarbox.worker import MainLoop, MainLoopRequest, MainLoopResult, PromptResponse, Worker

class Adapter:
    def evaluate(self, prompt, *, meter):
        return PromptResponse(prompt)

def worker():
    box = InMemoryMailbox("box", str)
    box.send_many("abc")
    made = Worker(box, len)
    return made.run, made.stop

def main_loop():
    requests = InMemoryMailbox("requests", MainLoopRequest[str])
    requests.send_many(map(MainLoopRequest, "abc"))
    made = MainLoop(Adapter(), requests, InMemoryMailbox("results", MainLoopResult[str]))
    return made.run, made.shutdown

def processor():
    bus = MessageBus("a")
    made = BusProcessor(bus, lambda message: None)
    return made.run, made.stop

chance = random.Random(7)
for number in range(int(sys.argv[1])):
    run, stop = chance.choice([worker, main_loop, processor])()
    signal.signal(signal.SIGALRM, lambda number, frame: stop())
    signal.setitimer(signal.ITIMER_REAL, chance.random() * 0.004 + 1e-6, 0.002)
    run()
    signal.setitimer(signal.ITIMER_REAL, 0)
print("done")
"""


def test_R111_real_signals_stop_workers_main_loops_and_processors() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "150"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
