"""R141: how brokers on a shared store start, what they refuse, and what they share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from pillarbox.broker.config import Config, DeclaredQueue, load
from pillarbox.broker.shared_queues import open_store
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.mailbox.url import without_password
from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.redis import RedisServer, free_ports
from tests.broker.shared.stores import SharedClock, StoreKind
from tests.broker.support import Client, Refused, eventually
from tests.cli.support import pillarbox_process

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
    with pytest.raises(InvalidParameterError, match="in one of the two"):
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


def test_R141_a_broker_whose_store_can_t_be_reached_says_so_and_ends() -> None:
    (port,) = free_ports(1)
    store = f"redis://app:hidden@127.0.0.1:{port}?retry_seconds=0.1"
    done = pillarbox_process("serve", "--port", "0", "--store", store)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the store redis://app@127.0.0.1:{port} can't be used: " in done.stderr
    assert "hidden" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


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


def test_R141_messages_in_flight_are_limited_over_all_brokers(
    kind: StoreKind, clock: SharedClock
) -> None:
    with (
        running_broker(clock=clock, shared_store=kind.open(), in_flight_max=3) as first,
        running_broker(clock=clock, shared_store=kind.open(), in_flight_max=3) as second,
        Client(first) as one,
        Client(second) as other,
    ):
        queue = one.create()
        for text in "abcdef":
            one.send(queue, text)
        held = one.receive(queue, 2) + other.receive(queue, 1)
        for client in (one, other):
            with pytest.raises(Refused, match="OverLimit"):
                client.receive(queue)
        other.delete(queue, held[0])
        assert one.bodies(queue, 1) == ["d"]
        clock.advance(31)  # the leases end
        assert sorted(other.bodies(queue, 3)) == ["b", "c", "d"]


def test_R141_old_messages_of_all_groups_and_priorities_are_deleted_without_a_receive(
    two: tuple[Client, Client], clock: SharedClock
) -> None:
    one, other = two
    fifo, plain = (one.create(fifo=each, MessageRetentionPeriod=300) for each in (True, False))

    def send(body: str, group: str) -> None:
        other.send(fifo, body, MessageGroupId=group, MessageDeduplicationId=body)

    for group in ("one", "two"):
        send(f"old-{group}", group)
    for priority in ("9", "0"):
        value = {"DataType": "Number", "StringValue": priority}
        one.send(plain, "old", MessageAttributes={"Pillarbox.Priority": value})
    clock.advance(200)
    send("young", "one")
    one.send(plain, "young")
    clock.advance(101)

    def are_swept() -> bool:
        clock.advance(2)  # if the round before was still at work, a later one does it
        return (one.counts(fifo), one.counts(plain)) == ((1, 0, 0), (1, 0, 0))

    eventually(are_swept)
    assert (other.bodies(fifo), other.bodies(plain)) == (["young"], ["young"])


def test_R141_a_batch_to_a_FIFO_queue_is_one_round_trip(
    brokers: list[RunningBroker], two: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    queue = one.create(fifo=True)
    name = queue.rpartition("/")[2]
    entries = [
        {
            "Id": f"e{number}",
            "MessageBody": str(number),
            "MessageGroupId": f"g{number % 3}",
            "MessageDeduplicationId": f"d{number % 8}",  # the last two are repetitions
        }
        for number in range(10)
    ]
    calls: list[str] = []
    shared = brokers[0].broker.shared
    assert shared is not None
    do = shared.store.do

    async def counted(request: Any) -> Any:
        calls.append(request.queue)
        return await do(request)

    monkeypatch.setattr(shared.store, "do", counted)
    sent = one("SendMessageBatch", QueueUrl=queue, Entries=entries)["Successful"]
    assert calls.count(name) == 1
    monkeypatch.undo()
    ids = [each["MessageId"] for each in sent]
    assert ids[8:] == ids[:2]
    again = other("SendMessageBatch", QueueUrl=queue, Entries=entries)["Successful"]
    assert [each["MessageId"] for each in again] == ids
    found = other.bodies(queue)
    assert sorted(found) == list("01234567")
    for group in range(3):
        assert [each for each in found if int(each) % 3 == group] == sorted(
            each for each in found if int(each) % 3 == group
        )


def _policy(client: Client, queue: str, deliveries: int = 1) -> dict[str, str]:
    policy = {"deadLetterTargetArn": client.arn(queue), "maxReceiveCount": deliveries}
    return {"RedrivePolicy": json.dumps(policy)}


def test_R39_a_chain_under_one_name_counts_the_deliveries_of_each_queue(
    two: tuple[Client, Client],
) -> None:
    """On Redis, queues whose names end so share a slot, and scripts know two of them at a time."""
    one, other = two
    name = one.create().rpartition("/")[2]
    queues = [
        one("CreateQueue", QueueName=name + end, Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
        for end in ("-c", "-c_dlq", "-c_dlq_dlq")
    ]
    for source, target in pairwise(queues):
        one("SetQueueAttributes", QueueUrl=source, Attributes=_policy(one, target, 2))
    one.send(queues[0], "a")
    for at in range(2):
        for client in two:
            assert client.bodies(queues[at]) == ["a"]
        assert other.bodies(queues[at]) == [], "it died"
    (last,) = one.receive(queues[2], AttributeNames=["All"])
    assert last["Attributes"]["ApproximateReceiveCount"] == "5"
    assert last["Attributes"]["DeadLetterQueueSourceArn"] == one.arn(queues[1])
    assert [one.counts(queue) for queue in queues] == [(0, 0, 0), (0, 0, 0), (1, 0, 0)]


def test_R39_a_queue_that_is_created_again_closes_no_cycle(two: tuple[Client, Client]) -> None:
    one, other = two
    first, second = one.create(), one.create()
    one("SetQueueAttributes", QueueUrl=first, Attributes=_policy(one, second))
    one("DeleteQueue", QueueUrl=second)
    name = second.rpartition("/")[2]
    other("CreateQueue", QueueName=name, Attributes=_policy(one, first))
    for queue, sources in ((first, [second]), (second, [])):
        listed = one("ListDeadLetterSourceQueues", QueueUrl=queue)
        assert listed.get("queueUrls", []) == sources
