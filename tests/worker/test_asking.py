"""R21: many ask at once, over every backend, and each gets its own answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pillarbox import RequestClient
from pillarbox.worker import Worker
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
        with pytest.raises(TimeoutError, match="had no answer"):
            client.ask(1, timeout=0.1)


def test_R21_a_client_that_was_opened_closes_its_mailboxes(place: Place) -> None:
    with RequestClient.open(place.url_of("questions"), int, int) as client:
        assert client._replies.name.startswith("questions")
        assert not client._replies.closed
    assert client._replies.closed
    assert client._requests.closed
