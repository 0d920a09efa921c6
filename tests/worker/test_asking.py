"""R21: many ask at once, over every backend, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from pillarbox import (
    AsyncRequestClient,
    DeadLetterPolicy,
    RequestClient,
    RequestRejectedError,
    open_mailbox,
)
from pillarbox.worker import Reject, RetryPolicy, Worker
from tests.unit.support import notices
from tests.worker.conftest import Place, eventually

Running = Callable[..., threading.Thread]
THREADS = 50


def ask_all(client: RequestClient[int, int], asks: int, threads: int) -> dict[int, int]:
    """So many asks by so many threads: what each was answered."""
    answers: dict[int, int] = {}
    errors: list[BaseException] = []

    def ask(first: int) -> None:
        try:
            for number in range(first, asks, threads):
                answers[number] = client.ask(number, timeout=90)
        except BaseException as error:  # noqa: BLE001 - the test shall see it
            errors.append(error)

    crowd = [threading.Thread(target=ask, args=(n,), daemon=True) for n in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert errors == []
    return answers


def check(place: Place, running: Running, asks: int) -> None:
    requests = place.open("questions", int)
    running(Worker(place.open("questions", int), lambda number: 2 * number, concurrency=16))
    with RequestClient.open(place.url_of("questions"), int, int) as client:
        with notices() as said:
            answers = ask_all(client, asks, THREADS)
        assert answers == {number: 2 * number for number in range(asks)}
        assert not [line for line in said if "dropped" in line], "one was answered twice"
        eventually(lambda: requests.approximate_count() == 0)
        assert client._replies.approximate_count() == 0


def test_R21_1000_asks_from_50_threads_all_answered_none_crossed(
    place: Place, running: Running
) -> None:
    check(place, running, 1_000)


@pytest.mark.parametrize("place", ["broker"], indirect=True)
def test_R21_10000_asks_from_50_threads_over_one_broker(place: Place, running: Running) -> None:
    check(place, running, 10_000)


def test_R21_clients_that_share_a_reply_mailbox_get_their_own_answers(
    place: Place, running: Running
) -> None:
    requests = place.open("questions", int)
    running(Worker(requests, lambda number: 2 * number, concurrency=4))
    clients = [RequestClient(requests, place.open("shared", int), shared=True) for _ in range(3)]
    answers: dict[int, dict[int, int]] = {}
    crowd = [
        threading.Thread(target=lambda n=n: answers.update({n: ask_all(clients[n], 20, 4)}))
        for n in range(3)
    ]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert answers == {n: {number: 2 * number for number in range(20)} for n in range(3)}


def test_R21_without_a_worker_an_ask_times_out(place: Place) -> None:
    with RequestClient.open(place.url_of("nobody"), int, int) as client:
        place.open("nobody", int)
        with pytest.raises(TimeoutError, match="had no reply"):
            client.ask(1, timeout=0.1)


def test_R21_a_client_that_was_opened_closes_its_mailboxes(place: Place) -> None:
    with RequestClient.open(place.url_of("questions"), int, int) as client:
        assert client._replies.name.startswith("questions")
        assert not client._replies.closed
    assert client._replies.closed
    assert client._requests.closed


def refuse(number: int) -> int:
    if number == 0:
        raise Reject("zero has no inverse")
    if number < 0:
        raise ValueError("a negative number")
    return number


async def refuse_async(number: int) -> int:
    return refuse(number)


@pytest.mark.parametrize("handler", [refuse, refuse_async])
def test_R21_a_client_gets_the_reason_of_a_rejection_at_once(
    place: Place, running: Running, handler: Callable[[int], object]
) -> None:
    box = place.open("questions", int, dead_letters=DeadLetterPolicy(2))
    running(Worker(box, handler, retry=RetryPolicy(1, backoff=0)))
    with RequestClient.open(place.url_of("questions"), int, int) as client:
        with pytest.raises(RequestRejectedError, match="zero has no inverse") as rejected:
            client.ask(0, timeout=60)
        assert rejected.value.reason == "zero has no inverse"
        assert rejected.value.mailbox == box.name
        with pytest.raises(RequestRejectedError, match=r"failed 2 times, .*: a negative number"):
            client.ask(-1, timeout=60)
        assert client.ask(1, timeout=60) == 1
    assert box.dead_letters is not None
    eventually(lambda: box.stats().dead == 2)


def test_R21_an_asyncio_client_gets_the_reason_too(place: Place, running: Running) -> None:
    box = place.open("questions", int, dead_letters=DeadLetterPolicy(2))
    running(Worker(box, refuse))

    async def ask() -> None:
        async with AsyncRequestClient.open(place.url_of("questions"), int, str) as client:
            with pytest.raises(RequestRejectedError, match="zero has no inverse"):
                await client.ask(0, timeout=60)

    asyncio.run(ask())


@pytest.mark.parametrize("reply_type", [bytes, str, int])
def test_R21_the_reason_arrives_whatever_the_type_of_the_answers(reply_type: type) -> None:
    requests = open_mailbox("memory:typed-requests", int, dead_letters=DeadLetterPolicy(1))
    replies = open_mailbox(f"memory:replies-of-{reply_type.__name__}", reply_type)
    worker = Worker(requests, refuse)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    with pytest.raises(RequestRejectedError, match="zero"):
        RequestClient(requests, replies).ask(0, timeout=60)
    worker.stop()
    thread.join(30)
