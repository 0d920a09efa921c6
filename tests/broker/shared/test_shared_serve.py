"""R141: how brokers on a shared store start, what they refuse, and what they share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from pillarbox.broker.config import Config, DeclaredQueue, load
from pillarbox.broker.shared_queues import open_store
from pillarbox.cli.serve import without_password
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.redis import RedisServer, free_ports
from tests.broker.shared.stores import SharedClock, StoreKind
from tests.broker.support import Client, Refused, eventually

ORDERS = {
    "dead-orders": DeclaredQueue(),
    "orders": DeclaredQueue(
        attributes={
            "VisibilityTimeout": 7,
            "RedrivePolicy": {
                "deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead-orders",
                "maxReceiveCount": 2,
            },
        },
        tags={"team": "one"},
    ),
}


@pytest.fixture
def two(brokers: list[RunningBroker]) -> Iterator[tuple[Client, Client]]:
    with Client(brokers[0]) as one, Client(brokers[1]) as other:
        yield one, other


def test_R141_a_broker_has_one_store() -> None:
    with pytest.raises(InvalidParameterError, match="given without data"):
        load(None, {"store": "redis://localhost", "data": "./data"})
    assert load(None, {"store": "redis://localhost", "data": "none"}).store == "redis://localhost"


def test_R141_an_unknown_store_is_refused_with_what_would_do() -> None:
    with pytest.raises(InvalidParameterError, match=r"redis\+cluster://"):
        open_store("mysql://localhost")


def test_R141_a_password_is_not_shown() -> None:
    shown = without_password("redis://app:secret@host:6379/2?password=secret")
    assert shown == "redis://app@host:6379/2"


def test_R141_a_broker_that_lost_its_store_is_not_ready(tmp_path: Path) -> None:
    server = RedisServer(str(tmp_path), *free_ports(1))
    server.start()
    try:
        with running_broker(shared_store=RedisSharedStore(server.url, {})) as url:
            assert _ready(url) == (200, b"ok\n")
            server.kill()
            status, said = _ready(url)
            assert (status, said.startswith(b"the store does not answer")) == (503, True)
            server.start()
            eventually(lambda: _ready(url)[0] == 200)
    finally:
        server.kill()


def _ready(url: str) -> tuple[int, bytes]:
    try:
        with urlopen(f"{url}/readyz") as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


def test_R141_declared_queues_are_the_same_at_every_broker(
    kind: StoreKind, clock: SharedClock
) -> None:
    config = Config(port=0, data=None, queues=ORDERS)
    for _ in range(2):  # the second one finds them there
        with (
            running_broker(config=config, clock=clock, shared_store=kind.open()) as url,
            Client(url) as sqs,
        ):
            found = sqs.attributes("orders")
            assert found["VisibilityTimeout"] == "7"
            assert "dead-orders" in found["RedrivePolicy"]
            assert sqs("ListQueueTags", QueueUrl="orders") == {"Tags": {"team": "one"}}
            sources = sqs("ListDeadLetterSourceQueues", QueueUrl="dead-orders")
            assert [each.rpartition("/")[2] for each in sources["queueUrls"]] == ["orders"]


def test_R141_a_poll_at_one_broker_is_woken_by_a_send_at_the_other(
    brokers: list[RunningBroker], two: tuple[Client, Client]
) -> None:
    one, other = two
    queue = one.create()
    found: list[str] = []
    with Client(brokers[0]) as waiting:
        poll = threading.Thread(
            target=lambda: found.extend(waiting.bodies(queue, WaitTimeSeconds=20))
        )
        poll.start()
        eventually(lambda: brokers[0].broker.metrics.parked == 1)
        other.send(queue, "a")
        poll.join(10)
    assert found == ["a"]


def test_R141_a_queue_deleted_at_one_broker_is_gone_at_the_other(
    two: tuple[Client, Client],
) -> None:
    one, other = two
    queue = one.create()
    other.send(queue, "a")
    one("DeleteQueue", QueueUrl=queue)
    for refused in (
        lambda: other.send(queue, "b"),
        lambda: other.receive(queue),
        lambda: other.attributes(queue),
    ):
        with pytest.raises(Refused, match="NonExistentQueue"):
            refused()


def test_R141_attributes_changed_at_one_broker_hold_at_the_other_at_once(
    two: tuple[Client, Client],
) -> None:
    one, other = two
    queue = one.create()
    other.send(queue, "now")
    one("SetQueueAttributes", QueueUrl=queue, Attributes={"DelaySeconds": "60"})
    other.send(queue, "later")
    assert other.bodies(queue) == ["now"]


def test_R141_tags_set_at_two_brokers_at_once_are_all_kept(brokers: list[RunningBroker]) -> None:
    with Client(brokers[0]) as sqs:
        queue = sqs.create()

        def tag(number: int) -> None:
            with Client(brokers[number % 2]) as mine:
                mine("TagQueue", QueueUrl=queue, Tags={f"tag {number}": "x"})

        threads = [threading.Thread(target=tag, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(sqs("ListQueueTags", QueueUrl=queue)["Tags"]) == 8


def test_R141_the_native_protocol_says_where_to_go(broker: RunningBroker) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{broker}/pillarbox/v1/orders")
    assert refused.value.code == 501
    assert b"open_mailbox(" in refused.value.read()
