"""R9, R14, R24: what only asyncio can ask of a mailbox on SQS."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from pillarbox import InvalidParameterError, MailboxClosedError
from pillarbox.mailbox.sqs import AsyncSQSMailbox, async_connection
from tests.event_loops import check_second_loop_is_refused

R = TypeVar("R")
Make = Callable[[], AsyncSQSMailbox[str]]


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run a case; one that hangs fails."""
    return asyncio.run(asyncio.wait_for(work, 30))


@pytest.fixture
def make(endpoint: str) -> Make:
    name = f"async-{uuid4()}"
    return lambda: AsyncSQSMailbox(name, str, endpoint=endpoint, create=True)


def clients() -> int:
    return sum(map(len, async_connection._shared.values()))


def test_R24_the_last_mailbox_to_close_closes_the_client(make: Make) -> None:
    async def case() -> None:
        async with make() as box, make() as other:
            await box.send("a")
            assert [m.body for m in await other.receive()] == ["a"]
            assert clients() == 1
        assert clients() == 0

    run(case())
    gc.collect()  # a client left open would warn now


def test_R24_a_mailbox_that_was_never_used_can_be_closed(make: Make) -> None:
    async def case() -> None:
        box = make()
        await box.close()
        with pytest.raises(MailboxClosedError):
            await box.send("a")

    run(case())


def test_R14_a_cancelled_receive_takes_nothing(make: Make) -> None:
    async def case() -> int:
        async with make() as box:
            task = asyncio.create_task(box.receive(wait_time_seconds=20))
            done, _ = await asyncio.wait([task], timeout=0.2)
            assert not done
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await box.send("a")
            (message,) = await box.receive(wait_time_seconds=20)
            return message.delivery_count

    assert run(case()) == 1


def test_R14_a_receive_that_is_cancelled_at_any_moment_loses_nothing(make: Make) -> None:
    async def case() -> list[str]:
        async with make() as box:
            await box.send("a")
            for turns in range(0, 60, 5):  # so that the cancel meets every moment of the call
                receive = box.receive(wait_time_seconds=20, visibility_timeout=2)
                task = asyncio.create_task(receive)
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():  # the answer came first
                    assert all(await box.nack_many(task.result()))
            return [m.body for m in await box.receive(wait_time_seconds=20)]

    assert run(case()) == ["a"]


def test_R14_parked_receives_leave_connections_for_others(make: Make) -> None:
    async def case() -> None:
        async with make() as box:
            parked = [asyncio.create_task(box.receive(wait_time_seconds=20)) for _ in range(100)]
            await box.send_many([str(n) for n in range(100)])
            received = await asyncio.gather(*parked)
            assert sorted(int(m.body) for (m,) in received) == list(range(100))
            answers = await asyncio.gather(*(m.acknowledge() for (m,) in received))
            assert answers == [True] * 100

    run(case())


def test_R20_an_async_mailbox_refuses_a_second_event_loop(make: Make) -> None:
    check_second_loop_is_refused(make())


def test_R34_many_that_open_at_once_look_the_queue_up_once(make: Make) -> None:
    async def case() -> None:
        box = make()
        await asyncio.gather(*(box.send(str(n)) for n in range(20)))
        assert await box.approximate_count() == 20
        await box.close()

    run(case())


def test_R34_a_queue_that_was_missing_is_found_once_it_is_there(make: Make, endpoint: str) -> None:
    async def case() -> None:
        async with make() as made:
            box: AsyncSQSMailbox[str] = AsyncSQSMailbox(
                f"{made.name}-later", str, endpoint=endpoint
            )
            with pytest.raises(InvalidParameterError, match="create=True"):
                await box.send("a")
            async with AsyncSQSMailbox(box.name, str, endpoint=endpoint, create=True):
                await box.send("a")
                assert [m.body for m in await box.receive()] == ["a"]
            await box.close()

    run(case())
