"""R14 for asyncio: a task that is cancelled takes nothing along."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from pillarbox.mailbox.redis import AsyncRedisMailbox
from pillarbox.testing.redis import shared_server, until
from tests.event_loops import check_second_loop_is_refused
from tests.redis.world import new_name

Box = AsyncRedisMailbox[str]


def run(case: Callable[[Box], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with AsyncRedisMailbox(new_name(), str, url=f"{shared_server().url}/-") as box:
            await case(box)

    asyncio.run(main())


async def parked(count: int) -> None:
    await asyncio.to_thread(
        until, lambda: len(shared_server().blocked()) == count, f"{count} receives are parked"
    )


def test_R14_cancelling_a_parked_receive_loses_nothing_and_counts_nothing() -> None:
    async def case(box: Box) -> None:
        task = asyncio.create_task(box.receive(wait_time_seconds=20))
        await parked(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await box.send("a")
        (message,) = await box.receive(wait_time_seconds=5)
        assert message.delivery_count == 1

    run(case)


def test_R14_cancelling_a_receive_at_any_moment_gives_its_message_back() -> None:
    async def case(box: Box) -> None:
        await box.send_many(["a", "b", "c"])
        for turns in range(30):
            task = asyncio.create_task(box.receive(max_messages=2))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await box.release_many(reversed(await task))
        while len(messages := await box.receive(max_messages=10)) < 3:  # it may be on its way
            await box.release_many(messages)
            await asyncio.sleep(0.01)
        assert [m.delivery_count for m in messages] == [1, 1, 1]

    run(case)


def test_R14_what_a_cancelled_receive_was_woken_for_goes_to_the_next() -> None:
    cancelled = False

    async def case(box: Box) -> None:
        nonlocal cancelled
        first = asyncio.create_task(box.receive(wait_time_seconds=20))
        await parked(1)
        second = asyncio.create_task(box.receive(wait_time_seconds=20))
        await parked(2)
        await asyncio.gather(box.send("a"), asyncio.to_thread(lambda: None))
        first.cancel()
        await asyncio.wait({first})
        cancelled = first.cancelled()
        # It may have its message already: then that is delivered, and the other one waits on.
        assert [m.body for m in await (second if cancelled else first)] == ["a"]
        second.cancel()
        await asyncio.wait({second})

    for _ in range(20):
        run(case)
        if cancelled:
            return
    pytest.fail("it always had its message before it was cancelled")


def test_R20_an_async_mailbox_refuses_a_second_event_loop() -> None:
    url = f"{shared_server().url}/-"
    check_second_loop_is_refused(AsyncRedisMailbox(new_name(), str, url=url))


def test_R20_many_tasks_at_once_are_exactly_once() -> None:
    async def case(box: Box) -> None:
        await asyncio.gather(*(box.send(str(n)) for n in range(100)))
        seen: list[str] = []

        async def consume() -> None:
            while messages := await box.receive(max_messages=3):
                seen.extend(m.body for m in messages)
                assert all(await asyncio.gather(*(m.acknowledge() for m in messages)))

        await asyncio.gather(*(consume() for _ in range(8)))
        assert sorted(seen) == sorted(map(str, range(100)))

    run(case)
