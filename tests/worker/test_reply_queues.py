"""R21: a client's own queue for answers has no dead letters, and ends with the client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import AsyncBrokerMailbox, RequestClient, open_mailbox
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, is_reply_queue, new_reply_queue
from pillarbox.mailbox.broker import admin
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.memory import shared_store
from pillarbox.mailbox.redis import list_queues
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.runner import run_blocking
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.redis import shared_server
from tests.broker.support import Client
from tests.unit.support import notices
from tests.worker.conftest import Place, eventually


def queues_of(place: Place, box: Any) -> set[str]:
    """The names of all queues beside the one of this mailbox."""
    url = place.url_of("questions")
    if place.kind == "memory":
        return set(shared_store.sessions)
    if place.kind == "file":
        return set(box._store.sessions)
    if place.kind == "broker":
        return {line.name for line in admin.list_queues(url)}
    return {each.rpartition("/")[2] for each in list_queues(f"{url.rpartition('/')[0]}/")}


def answered(client: RequestClient[Any, Any], box: Any, body: int) -> Any:
    """Ask, and be answered: by a worker that is done by the time that we look."""
    request_id = client._requests.send(body, reply_to=client._replies.name)
    (request,) = box.receive(wait_time_seconds=5)
    request.reply(request.body + 1)
    request.acknowledge()
    (answer,) = client._replies.receive(wait_time_seconds=5)
    assert answer.in_reply_to == request_id
    answer.acknowledge()
    return answer.body


def test_R21_a_client_that_closes_leaves_no_queue_behind(place: Place) -> None:
    box = place.open("questions", int)
    before = queues_of(place, box)
    for _ in range(3):
        with RequestClient.open(place.url_of("questions"), int, int) as client:
            assert answered(client, box, 4) == 5
            new = queues_of(place, box) - before
            assert new == {client._replies.name}, "and no dead letters"
            client._replies.send(7)  # which nobody waits for
        assert queues_of(place, box) == before
        client.close()  # and once more


def test_R21_an_answer_that_comes_after_its_client_has_closed_makes_no_queue(
    place: Place,
) -> None:
    box = place.open("questions", int)
    before = queues_of(place, box)
    with RequestClient.open(place.url_of("questions"), int, int) as client:
        name = client._replies.name
        client._requests.send(4, reply_to=name)
        (request,) = box.receive(wait_time_seconds=5)
    with notices() as said:
        answer_id = request.reply(5)
    assert request.acknowledge() is True
    if place.kind == "redis":  # which can't tell, but lets it end by itself
        assert all(0 < ttl <= IDLE_SECONDS_MAX for ttl in times_to_live(name))
    else:
        assert answer_id == ""
        assert [line for line in said if "its client has closed" in line]
        assert queues_of(place, box) == before


def test_R21_an_answer_to_a_queue_that_somebody_named_still_makes_it(place: Place) -> None:
    box = place.open("questions", int)
    box.send(4, reply_to="answers")
    assert box.receive(wait_time_seconds=5)[0].reply(5) != ""
    assert "answers" in queues_of(place, box)
    base = place.url_of("questions").removesuffix(box.name)
    with open_mailbox(f"{base}answers", int) as answers:
        assert [message.body for message in answers.receive()] == [5]
        answers.purge()


def test_R21_a_client_whose_queue_can_t_be_made_leaves_nothing_open(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/questions"
    with pytest.raises(ValueError, match="body_type"):
        RequestClient.open(url, int, object())
    with DurableMailbox("questions", int, path=tmp_path, durability="os"):
        pass  # it could not be opened otherwise if it was open


def times_to_live(name: str) -> list[int]:
    server = shared_server()
    keys = [key for key in keys_of(name).keys if server.ask("EXISTS", key)]
    assert keys
    return [server.ask("TTL", key) for key in keys]


def test_R21_on_redis_the_queue_of_a_killed_client_ends_by_itself() -> None:
    url = f"{shared_server().url}/{new_reply_queue('q')[-12:]}"
    with open_mailbox(url, int) as box:
        client = RequestClient.open(url, int, int)
        assert all(0 < ttl <= IDLE_SECONDS_MAX for ttl in times_to_live(client._replies.name))
        client._requests.send(1, reply_to=client._replies.name)
        box.receive()[0].reply(2)
        assert all(0 < ttl <= IDLE_SECONDS_MAX for ttl in times_to_live(client._replies.name))
        client.close()


def test_R21_in_a_store_the_queue_of_a_killed_client_goes_with_the_next_client(
    tmp_path: Path,
) -> None:
    left = new_reply_queue("questions")
    with DurableMailbox(left, int, path=tmp_path) as box:
        box.send(1)
    url = f"file:{tmp_path}/questions"
    with (
        RequestClient.open(url, int, int) as client,
        RequestClient.open(url, int, int) as other,
        open_mailbox(url, int) as box,
    ):
        assert left not in box._store.sessions  # type: ignore[attr-defined]
        assert answered(client, box, 1) == 2
        assert answered(other, box, 2) == 3


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def broker(clock: FakeClock) -> Iterator[RunningBroker]:
    with running_broker(clock=clock) as url:
        yield url


def names_at(broker: RunningBroker) -> set[str]:
    return {name for name in list(broker.broker.store.sessions) if is_reply_queue(name)}


def pass_days(clock: FakeClock, days: float) -> None:
    for _ in range(round(days * 24)):
        clock.advance(3_600)


def test_R21_on_a_broker_the_queue_of_a_killed_client_is_deleted_after_a_day(
    broker: RunningBroker, clock: FakeClock
) -> None:
    url = f"{broker}/questions"
    killed, living = RequestClient.open(url, int, int), RequestClient.open(url, int, int)
    assert names_at(broker) == {killed._replies.name, living._replies.name}
    for _ in range(4):
        pass_days(clock, 0.5)
        assert living._replies.receive() == []
    eventually(lambda: names_at(broker) == {living._replies.name}, "one is deleted")
    living.close()
    assert names_at(broker) == set()
    killed.close()  # as if it had not been killed after all


def test_R21_a_client_that_was_idle_for_days_is_answered(
    broker: RunningBroker, clock: FakeClock
) -> None:
    url = f"{broker}/questions"
    with RequestClient.open(url, int, int) as client, open_mailbox(url, int) as box:
        client._clock = clock
        client._renew_at = 0
        run_blocking(client._renew(clock.now()))
        pass_days(clock, 2.2)
        eventually(lambda: names_at(broker) == set(), "it is deleted")
        run_blocking(client._renew(clock.now()))  # as each ask does
        assert answered(client, box, 1) == 2


def test_R21_the_queue_of_a_client_of_sqs_s_face_is_no_business_of_ours(
    broker: RunningBroker, clock: FakeClock
) -> None:
    name = new_reply_queue("questions")
    with Client(broker) as sqs:
        sqs("CreateQueue", QueueName=name)
    pass_days(clock, 3)
    assert names_at(broker) == {name}


def test_R21_an_async_worker_s_late_answer_makes_no_queue(broker: RunningBroker) -> None:
    async def main() -> str:
        async with AsyncBrokerMailbox("questions", int, url=str(broker)) as box:
            await box.send(1, reply_to=new_reply_queue("questions"))
            (request,) = await box.receive()
            return await request.reply(2)

    assert asyncio.run(main()) == ""
    assert names_at(broker) == set()
