"""R21: request and response for asyncio, on memory, behind a broker and on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox import AsyncMailbox, AsyncRequestClient, open_async_mailbox
from pillarbox.mailbox.broker import admin
from pillarbox.mailbox.request_steps import Matching
from pillarbox.testing.broker import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


async def answer_all(requests: AsyncMailbox[int], reply: Callable[[int], int]) -> None:
    """A worker, until it is cancelled."""
    async for request in requests.messages(max_messages=10):
        await request.reply(reply(request.body))
        await request.acknowledge()


def with_worker(
    url: str, work: Callable[[AsyncRequestClient[int, int]], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        async with (
            open_async_mailbox(url, int) as requests,
            AsyncRequestClient.open(url, int, int) as client,
        ):
            worker = asyncio.create_task(answer_all(requests, lambda body: 2 * body))
            await work(client)
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize("place", ["memory", "broker"])
def test_R21_many_tasks_ask_at_once_and_each_has_its_own_answer(
    place: str, broker: RunningBroker
) -> None:
    async def ask(client: AsyncRequestClient[int, int]) -> None:
        asked = (client.ask(number, timeout=20) for number in range(50))
        assert await asyncio.gather(*asked) == [2 * number for number in range(50)]
        assert await client.ask(100, timeout=20) == 200
        assert client._matching.asks == {}

    with_worker(f"{broker}/doubles" if place == "broker" else "memory:doubles", ask)


def test_R21_the_mailbox_for_answers_ends_with_its_client(broker: RunningBroker) -> None:
    async def ask(client: AsyncRequestClient[int, int]) -> None:
        assert await client.ask(1, timeout=20) == 2
        names.append(client._replies.name)
        assert names[0] in [
            line.name for line in await asyncio.to_thread(admin.list_queues, broker)
        ]

    names: list[str] = []
    with_worker(f"{broker}/ending", ask)
    assert names[0] not in [line.name for line in admin.list_queues(broker)]


def test_R21_no_answer_in_time_is_a_timeout_that_says_what_to_do() -> None:
    async def main() -> None:
        async with AsyncRequestClient.open("memory:nobody-answers", int, int) as client:
            with pytest.raises(TimeoutError, match=r"nobody-answers.*worker"):
                await client.ask(1, timeout=0.05)
            assert client._receiver is None
            with pytest.raises(ValueError, match="timeout"):
                await client.ask(1, timeout=-1)

    asyncio.run(main())


def test_R21_a_cancelled_ask_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with AsyncRequestClient.open("memory:cancelled", int, int) as client:
            asking = asyncio.create_task(client.ask(1, timeout=20))
            async with open_async_mailbox("memory:cancelled", int) as requests:
                (request,) = await requests.receive(wait_time_seconds=20)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                assert client._matching.asks == {}
                assert await request.reply(5)  # too late: it is dropped with the next ask
                await request.acknowledge()
                again = asyncio.create_task(client.ask(2, timeout=20))
                (request,) = await requests.receive(wait_time_seconds=20)
                await request.reply(7)
                assert await again == 7

    asyncio.run(main())


def test_R21_clients_that_share_a_mailbox_get_their_own_answers() -> None:
    async def main() -> None:
        async with (
            open_async_mailbox("memory:shared-requests", int) as requests,
            open_async_mailbox("memory:shared-answers", int) as answers,
            open_async_mailbox("memory:shared-answers", int) as same,
        ):
            worker = asyncio.create_task(answer_all(requests, lambda body: -body))
            one = AsyncRequestClient(requests, answers, shared=True)
            two = AsyncRequestClient(requests, same, shared=True)
            asked = [client.ask(n, timeout=20) for n in range(20) for client in (one, two)]
            assert await asyncio.gather(*asked) == [-n for n in range(20) for _ in range(2)]
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            await one.close()
            await two.close()

    asyncio.run(main())


def test_R21_clients_with_each_others_reply_do_not_release_them_in_lockstep() -> None:
    message = SimpleNamespace(id="m", in_reply_to="another client's")
    clients = [Matching[Any](shared=True) for _ in range(2)]
    for _ in range(5):
        for client in clients:
            client.sort([message], "answers")
    pauses = [[client.pause_ns(message) for _ in range(20)] for client in clients]
    assert pauses[0] != pauses[1]
    assert max(map(max, pauses)) <= 2 * min(map(min, pauses))


def test_R21_a_broken_mailbox_fails_whoever_waits() -> None:
    async def main() -> None:
        requests = open_async_mailbox("memory:broken-requests", int)
        answers = open_async_mailbox("memory:broken-answers", int)
        client = AsyncRequestClient(requests, answers)
        await answers.close()
        with pytest.raises(Exception, match="was closed"):
            await client.ask(1, timeout=20)
        await client.close()
        await requests.close()

    asyncio.run(main())
