"""The contract, on the asyncio twin of mailboxes in memory, and what only asyncio can ask."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from pillarbox import AsyncInMemoryMailbox, AsyncMailbox, AsyncMessage
from pillarbox.mailbox.store import Store
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.contract import AsyncMemoryBackend, Backend, MailboxContract
from tests.event_loops import check_second_loop_is_refused

R = TypeVar("R")

PATIENCE_SECONDS = 10


class TestAsyncMemory(MailboxContract):
    def make_backend(self) -> Backend:
        return AsyncMemoryBackend()


def test_R9_async_memory_declares_that_it_can_do_everything() -> None:
    assert dict(AsyncMemoryBackend.cannot) == {}


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run a case; one that hangs fails."""
    return asyncio.run(asyncio.wait_for(work, PATIENCE_SECONDS))


def open_box(**options: Any) -> AsyncInMemoryMailbox[str]:
    return AsyncInMemoryMailbox("box", str, **options)


async def parked(
    box: AsyncInMemoryMailbox[str], count: int = 1, **options: Any
) -> list[asyncio.Task[Any]]:
    """Tasks that wait in `receive`, in the order in which they came."""
    options.setdefault("wait_time_seconds", 1_000)
    tasks = [asyncio.create_task(box.receive(**options)) for _ in range(count)]
    await until_parked(box, count)
    return tasks


async def until_parked(box: AsyncInMemoryMailbox[str], count: int) -> None:
    """A task parks without waiting for anything else: turns of the loop are enough."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(box._session.waiters) == count


def test_R9_an_async_mailbox_has_the_shape_of_the_protocol() -> None:
    async def case() -> None:
        box = open_box()
        assert isinstance(box, AsyncMailbox)
        await box.send("a")
        (message,) = await box.receive()
        assert isinstance(message, AsyncMessage)

    run(case())


def test_R24_an_async_mailbox_closes_itself_after_a_with_block() -> None:
    async def case() -> None:
        async with open_box() as box:
            await box.send("a")
            assert box.closed is False
        assert box.closed is True

    run(case())


def test_R14_cancelling_a_parked_receive_loses_nothing_and_counts_nothing() -> None:
    async def case() -> None:
        box = open_box()
        (task,) = await parked(box)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_parked(box, 0)
        await box.send("a")
        (message,) = await box.receive()
        assert message.delivery_count == 1

    run(case())


def test_R14_cancelling_a_receive_that_was_just_served_gives_its_message_back() -> None:
    async def case() -> None:
        box = open_box()
        (task,) = await parked(box, max_messages=2)
        await box.send_many(["a", "b", "c"])  # it has its leases now, and does not know yet
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        messages = await box.receive(max_messages=10)
        assert [(m.body, m.delivery_count) for m in messages] == [("a", 1), ("b", 1), ("c", 1)]

    run(case())


def test_R14_what_a_cancelled_receive_gave_back_goes_to_the_next_in_line() -> None:
    async def case() -> None:
        box = open_box()
        first, second = await parked(box, 2)
        await box.send("a")
        first.cancel()
        (message,) = await second
        assert (message.body, message.delivery_count) == ("a", 1)
        assert first.cancelled()

    run(case())


def test_R14_a_receive_that_is_out_of_time_by_wait_for_loses_nothing() -> None:
    async def case() -> None:
        box = open_box()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(box.receive(wait_time_seconds=1_000), 0.01)
        await box.send("a")
        (message,) = await box.receive()
        assert message.delivery_count == 1

    run(case())


def test_R14_one_send_wakes_exactly_one_of_many_tasks() -> None:
    async def case() -> None:
        box = open_box()
        tasks = await parked(box, 1_000)
        await box.send("a")
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [m.body for task in done for m in task.result()] == ["a"]
        assert len(pending) == 999
        await until_parked(box, 999)
        await box.close()
        assert await asyncio.gather(*pending) == [[]] * 999

    run(case())


def test_R14_many_tasks_are_served_first_come_first_served() -> None:
    async def case() -> None:
        box = open_box()
        tasks = await parked(box, 100)
        await box.send_many([str(n) for n in range(100)])
        received = await asyncio.gather(*tasks)
        assert [message.body for (message,) in received] == [str(n) for n in range(100)]

    run(case())


def test_R14_a_parked_task_does_not_stop_the_loop() -> None:
    async def case() -> None:
        box = open_box()
        (task,) = await parked(box)
        turns = 0
        for _ in range(100):
            await asyncio.sleep(0)
            turns += not task.done()
        assert turns == 100
        await box.close()
        assert await task == []

    run(case())


def test_R14_a_parked_task_is_served_when_the_clock_brings_a_delay_to_its_end() -> None:
    async def case() -> None:
        clock = FakeClock()
        box = open_box(clock=clock)
        await box.send("a", delay_seconds=60)
        (task,) = await parked(box)
        clock.advance(60)
        (message,) = await task
        assert message.body == "a"

    run(case())


def test_R14_a_parked_task_is_served_by_a_thread_that_sends() -> None:
    async def case() -> None:
        store = Store()
        box = open_box(store=store)
        (task,) = await parked(box)
        await asyncio.to_thread(lambda: box._sync.send("from a thread"))
        (message,) = await task
        assert message.body == "from a thread"

    run(case())


def test_R20_gathered_sends_and_receives_are_exactly_once() -> None:
    async def case() -> None:
        box = open_box()

        seen: list[str] = []

        async def consume() -> None:
            while messages := await box.receive(max_messages=3, wait_time_seconds=1_000):
                seen.extend(m.body for m in messages)
                assert all(await asyncio.gather(*(m.acknowledge() for m in messages)))
                if len(seen) >= 500:
                    await box.close()
                    return

        consumers = [consume() for _ in range(8)]
        await asyncio.gather(*consumers, *(box.send(str(n)) for n in range(500)))
        assert sorted(seen) == sorted(map(str, range(500)))
        assert (await box.stats()).total == 0

    run(case())


def test_R20_an_async_mailbox_refuses_a_second_event_loop() -> None:
    check_second_loop_is_refused(open_box())


def test_R14_a_receive_whose_loop_is_gone_loses_nothing() -> None:
    store = Store()
    gone = open_box(store=store)
    loop = asyncio.new_event_loop()
    task = loop.create_task(gone.receive(wait_time_seconds=1_000))
    loop.run_until_complete(until_parked(gone, 1))
    loop.close()

    async def case() -> None:
        box = open_box(store=store)
        await box.send("a")
        (message,) = await box.receive()
        assert message.delivery_count == 1

    run(case())
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    task.get_coro().close()
