"""One queue never holds up another: long work on a queue is done in short steps, between which
the broker serves everybody else.

What counts is the longest time for which the event loop is held. It is measured as processor
time of the loop's thread, so that a busy machine proves the same as a quiet one, and compared
with the same work in one step: that is the control, and it must hold the loop for much longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from pillarbox import BrokerMailbox
from pillarbox.broker import moves, native, retention
from pillarbox.core import lines
from pillarbox.core.queue import Queue, Record, waiting
from pillarbox.dashboard import mount
from pillarbox.mailbox import local_verbs, queue_steps
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client

COUNT = 60_000
TIMES_SHORTER = 5
A_DAY = 86_400


class Crowd:
    """A broker whose queue "crowded" holds very many messages."""

    def __init__(self, url: RunningBroker, clock: FakeClock) -> None:
        self.url, self.clock = url, clock
        self.sqs = Client(url)
        created = self.sqs(
            "CreateQueue", QueueName="crowded", Attributes={"MessageRetentionPeriod": str(A_DAY)}
        )
        self.queue: str = created["QueueUrl"]
        self.box = BrokerMailbox("crowded", bytes, url=url)
        self.session = url.broker.store.sessions["crowded"]

    def close(self) -> None:
        self.sqs.close()
        self.box.close()

    def get(self, path: str, form: dict[str, str] | None = None) -> str:
        data = None if form is None else urlencode(form).encode()
        with urlopen(Request(f"{self.url}/dashboard/queues/crowded{path}", data=data)) as answer:
            return bytes(answer.read()).decode()

    def fill(self, count: int = COUNT, delay: int = 0) -> None:
        for _ in range(0, count, 1_000):
            self.session.send([b"a letter"] * 1_000, delay=delay)
            self.clock.advance(0.000_01)

    def lease(self, count: int, seconds: int) -> None:
        for _ in range(0, count, 1_000):
            self.session.receive(self.url.broker, 1_000, seconds * 10**9, 0)
            self.clock.advance(0.000_01)

    def old_handles(self) -> list[str]:
        """Handles of ten messages that went back to the end of a long line."""
        self.fill(COUNT // 2)
        self.lease(COUNT // 2, 1)
        self.session.send([b"a letter"] * 10)
        got = self.sqs.receive(self.queue, VisibilityTimeout=1)
        self.clock.advance(2)
        while self.session.counts()[0] < COUNT // 2 + 10:  # some come back at each look
            pass
        return [message["ReceiptHandle"] for message in got]

    def do(self, what: Callable[[], Any]) -> Any:
        """In the broker's own thread."""

        async def run() -> Any:
            answer = what()
            return await answer if asyncio.iscoroutine(answer) else answer

        return asyncio.run_coroutine_threadsafe(run(), self.url.loop).result()

    def longest_hold(self, what: Callable[[], object]) -> float:
        """For how long the event loop was held while this was done, at the most."""
        holds: list[float] = []
        watching = [True]
        last = [0.0]

        def beat() -> None:
            now = time.thread_time()
            if last[0]:
                holds.append(now - last[0])
            last[0] = now
            if watching:
                self.url.loop.call_soon(beat)

        self.do(beat)
        try:
            what()
        finally:
            watching.clear()
        self.do(lambda: None)
        return max(holds)


@contextmanager
def crowd() -> Iterator[Crowd]:
    clock = FakeClock()
    with running_broker(clock=clock) as url:
        found = Crowd(url, clock)
        found.do(lambda: mount(url.broker))
        try:
            yield found
        finally:
            found.close()


def delete_by_old_handles(found: Crowd) -> Callable[[], object]:
    entries = [{"Id": str(n), "ReceiptHandle": h} for n, h in enumerate(found.old_handles())]
    return lambda: found.sqs("DeleteMessageBatch", QueueUrl=found.queue, Entries=entries)


def change_by_old_handles(found: Crowd) -> Callable[[], object]:
    entries = [
        {"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": 0}
        for n, handle in enumerate(found.old_handles())
    ]
    return lambda: found.sqs("ChangeMessageVisibilityBatch", QueueUrl=found.queue, Entries=entries)


def redrive_all(found: Crowd) -> Callable[[], object]:
    found.fill()
    found.sqs("CreateQueue", QueueName="elsewhere")
    return lambda: found.box.redrive(to="elsewhere")


def redrive_from_the_dashboard(found: Crowd) -> Callable[[], object]:
    found.fill()
    token = found.get("").partition('name="token" value="')[2].partition('"')[0]
    return lambda: found.get("/redrive", {"token": token, "which": "all"})


def look_at_the_dashboard(found: Crowd) -> Callable[[], object]:
    found.fill()
    return lambda: found.get(f"?offset={COUNT // 2}")


def leases_end(found: Crowd) -> Callable[[], object]:
    found.fill()
    found.lease(COUNT, 1)
    found.clock.advance(2)
    return lambda: [found.sqs.receive(found.queue) for _ in range(10)]


def delays_end(found: Crowd) -> Callable[[], object]:
    found.fill(delay=10**9)
    found.clock.advance(2)
    return lambda: [found.sqs.receive(found.queue) for _ in range(10)]


def retention_ends(found: Crowd) -> Callable[[], object]:
    found.fill()
    queue = found.url.broker.local.get("crowded")

    def sweep() -> None:
        found.clock.advance(A_DAY + 1)
        found.do(lambda: found.url.broker.in_slices(retention.sweep(queue)))
        assert queue.session.totals.expired == COUNT

    return sweep


def purge(found: Crowd) -> Callable[[], object]:
    found.fill()
    return lambda: found.sqs("PurgeQueue", QueueUrl=found.queue)


LONG_WORK = {
    each.__name__: each
    for each in (
        delete_by_old_handles,
        change_by_old_handles,
        redrive_all,
        redrive_from_the_dashboard,
        look_at_the_dashboard,
        leases_end,
        delays_end,
        retention_ends,
        purge,
    )
}
# What would bring no gain if it were done in one step is left out: the dashboard works in threads
# of its own, and a purge gives its messages away.
IN_ONE_STEP = ("redrive_all", "leases_end", "delays_end", "retention_ends")
BY_SEARCH = ("delete_by_old_handles", "change_by_old_handles")


def held(work: str) -> float:
    with crowd() as found:
        return found.longest_hold(LONG_WORK[work](found))


@contextmanager
def in_one_step() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (queue_steps, local_verbs, native, moves, retention):
            patch.setattr(module, "SLICE", 10**9)
        yield


@contextmanager
def looking_through_the_line() -> Iterator[None]:
    def find(queue: Queue, key: int) -> Record | None:
        return next((record for record in waiting(queue) if record.key == key), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "find", find)
        yield


@pytest.fixture(scope="module")
def one_step_hold() -> float:
    """How long a redrive of all messages holds the loop if it is done in one step."""
    with in_one_step():
        return held("redrive_all")


@pytest.mark.parametrize("work", LONG_WORK)
def test_R51_long_work_on_one_queue_does_not_hold_up_the_others(
    work: str, one_step_hold: float
) -> None:
    assert held(work) * TIMES_SHORTER < one_step_hold


@pytest.mark.parametrize("work", [*IN_ONE_STEP, *BY_SEARCH])
def test_R51_control_the_same_work_in_one_step_holds_them_up(work: str) -> None:
    short = held(work)
    with looking_through_the_line() if work in BY_SEARCH else in_one_step():
        assert held(work) > TIMES_SHORTER * short


def test_R51_the_dashboard_redrives_a_queue_once_at_a_time() -> None:
    with crowd() as found:
        found.fill(10_000)
        token = found.get("").partition('name="token" value="')[2].partition('"')[0]
        form = {"token": token, "which": "all", "per_second": "1"}
        assert "Redriving 1 messages per second" in found.get("/redrive", form)
        assert "A redrive of this queue is still running" in found.get("/redrive", form)


def test_R51_what_is_due_comes_out_in_order_though_it_is_settled_in_slices() -> None:
    with crowd() as found:
        for number in range(1_000):
            found.session.send([b"%d" % number], delay=(1_000 - number) * 10**6)
        found.clock.advance(2)

        got = [body for _ in range(100) for body in found.sqs.bodies(found.queue)]

        assert got == [str(number) for number in reversed(range(1_000))]
