"""R103: workers that are started and stopped at random lose nothing and count nothing twice."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from pillarbox import InMemoryMailbox
from pillarbox.worker import Job, Worker

MESSAGES = 60


@pytest.fixture(autouse=True)
def interrupted_often() -> Iterator[None]:
    """Threads interrupt one another as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


def one_life(kind: str, chance: random.Random) -> None:
    """A worker that is stopped at some moment: what it did, and what it left."""
    box = InMemoryMailbox("box", int)
    box.send_many(range(MESSAGES))
    done: list[int] = []
    pause = chance.choice([0, 0, 0.0005])

    def plain(body: int, job: Job[int]) -> None:
        if pause:
            threading.Event().wait(pause)
        done.append(body)

    async def coroutine(body: int, job: Job[int]) -> None:
        if pause:
            await asyncio.sleep(pause)
        done.append(body)

    handler = plain if kind == "thread" else coroutine
    worker = Worker(box, handler, concurrency=chance.randint(1, 12))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    threading.Event().wait(chance.uniform(0, 0.006))
    worker.stop()
    thread.join(20)
    assert not thread.is_alive(), "it did not stop"
    # A receive that was parked when it stopped may hold something for a moment still.
    left = []
    while len(left) + len(done) < MESSAGES:
        left += box.receive(max_messages=100, wait_time_seconds=5)
    assert Counter(done) + Counter(m.body for m in left) == Counter(range(MESSAGES))
    assert {message.delivery_count for message in left} <= {1}
    assert worker.stats().handled == len(done)
    box.close()  # and the receive is gone


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_R103_stopped_at_any_moment(kind: str) -> None:
    chance = random.Random(103)
    for _ in range(150):
        one_life(kind, chance)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["thread", "task"])
def test_R103_stopped_at_any_moment_very_often(kind: str) -> None:
    for seed in range(20_000):
        one_life(kind, random.Random(seed))


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_R103_no_thread_is_left_behind(kind: str) -> None:
    async def coroutine(body: int) -> None:
        await asyncio.to_thread(int, body)

    before = set(threading.enumerate())
    for _ in range(5):
        worker: Worker[int] = Worker("memory:left-behind", int if kind == "thread" else coroutine)
        worker.mailbox.send_many(range(20))
        timer = threading.Timer(0.05, worker.stop)
        timer.start()
        worker.run()
        timer.join()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert left - {"pillarbox-pulse"} == set()  # that one is the store's, and goes by itself
