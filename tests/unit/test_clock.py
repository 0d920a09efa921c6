"""Time as mailboxes see it: the machine's, and one that a test moves."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pillarbox.clock import SystemClock
from pillarbox.testing import FakeClock
from tests.unit.support import PATIENCE_SECONDS, WatchedClock, start

SECOND = 1_000_000_000


def closed_gate() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


def test_R53_the_system_clock_never_goes_back_and_knows_the_time_of_day() -> None:
    clock = SystemClock()
    times = [clock.now() for _ in range(1_000)]
    assert times == sorted(times)
    assert abs(clock.now() + clock.epoch_ns - time.time_ns()) < 60 * SECOND


def test_R14_a_wait_ends_at_its_time_and_not_before() -> None:
    clock = SystemClock()
    until = clock.now() + SECOND // 50
    clock.wait(closed_gate(), until)
    assert clock.now() >= until


def test_R14_a_wait_for_a_time_that_is_over_ends_at_once() -> None:
    clock = SystemClock()
    clock.wait(closed_gate(), clock.now() - SECOND)
    clock.wait(closed_gate(), 0)


def test_R14_a_wait_ends_when_its_gate_is_opened() -> None:
    clock = SystemClock()
    gate = closed_gate()
    call = start(lambda: clock.wait(gate, clock.now() + 1_000 * SECOND))
    gate.release()
    call.result()


def test_R14_a_wait_may_be_for_longer_than_a_thread_can_sleep() -> None:
    clock = SystemClock()
    gate = closed_gate()
    call = start(lambda: clock.wait(gate, 1 << 70))
    gate.release()
    call.result()


def test_R9_the_system_clock_calls_back_on_the_loop_or_is_cancelled() -> None:
    async def case() -> list[str]:
        clock = SystemClock()
        loop = asyncio.get_running_loop()
        called: list[str] = []
        done = asyncio.Event()
        clock.call_at(clock.now() + SECOND // 100, lambda: called.append("cancelled"), loop)()
        clock.call_at(
            clock.now() + SECOND // 100, lambda: (called.append("on time"), done.set()), loop
        )
        await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)
        return called

    assert asyncio.run(case()) == ["on time"]


def test_R25_a_fake_clock_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()
    before = clock.now()
    assert clock.now() == before
    clock.advance(1.5)
    assert clock.now() - before == 3 * SECOND // 2
    clock.advance(0)
    assert clock.now() - before == 3 * SECOND // 2
    assert FakeClock(5).now() == 5


@pytest.mark.parametrize("seconds", [-1, -1e-9, float("nan")])
def test_R25_a_fake_clock_never_goes_back(seconds: float) -> None:
    clock = FakeClock()
    before = clock.now()
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(seconds)
    assert clock.now() == before


def test_R25_a_fake_clock_wakes_those_whose_time_has_come_and_no_others() -> None:
    clock = WatchedClock()
    now = clock.now()
    calls = {n: start(lambda n=n: clock.wait(closed_gate(), now + n * SECOND)) for n in (1, 2, 3)}  # type: ignore[misc]
    clock.wait_until_waiting(3)
    clock.advance(2)
    calls[1].result()
    calls[2].result()
    assert clock.waiting == 1
    assert not calls[3].done
    clock.advance(1)
    calls[3].result()
    assert clock.waiting == 0


def test_R25_a_fake_wait_ends_when_its_gate_is_opened_and_leaves_no_alarm() -> None:
    clock = WatchedClock()
    gate = closed_gate()
    call = start(lambda: clock.wait(gate, clock.now() + SECOND))
    clock.wait_until_waiting(1)
    gate.release()
    call.result()
    assert clock.waiting == 0
    clock.advance(5)


def test_R25_a_fake_wait_for_a_time_that_is_over_ends_at_once() -> None:
    clock = FakeClock()
    clock.wait(closed_gate(), clock.now())


def test_R25_a_fake_clock_calls_back_on_the_loop_or_is_cancelled() -> None:
    async def case() -> list[str]:
        clock = FakeClock()
        loop = asyncio.get_running_loop()
        called: list[str] = []
        clock.call_at(clock.now() + SECOND, lambda: called.append("cancelled"), loop)()
        clock.call_at(clock.now() + SECOND, lambda: called.append("due"), loop)
        clock.call_at(clock.now() + 2 * SECOND, lambda: called.append("too early"), loop)
        clock.advance(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return called

    assert asyncio.run(case()) == ["due"]
