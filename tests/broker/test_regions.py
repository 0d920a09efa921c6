"""The same name in two regions, or two accounts, is two queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.exceptions import ClientError

from pillarbox import open_mailbox
from pillarbox.broker import Key
from pillarbox.mailbox.broker.admin import list_queues
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.redis import shared_server
from tests.broker.support import Client

HERE, THERE = "us-east-1", "eu-west-1"
OWN, ELSE = "000000000000", "111122223333"
KEYS = (
    Key("root", "root-secret"),
    Key("tenant", "tenant-secret", account=ELSE),
    Key("reader", "reader-secret", ("orders*",), ("receive",), account=ELSE),
)


def _client(url: RunningBroker, region: str, key: str = "root") -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=str(url),
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=f"{key}-secret",
    )


@pytest.fixture(params=["open", "keys", "disk"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    data = str(tmp_path / "data") if request.param == "disk" else None
    with running_broker(data, keys=() if request.param == "open" else KEYS) as url:
        yield url


def _bodies(sqs: Any, queue: str) -> list[str]:
    found = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
    return [message["Body"] for message in found]


def test_R55_the_same_name_in_two_regions_is_two_queues(url: RunningBroker) -> None:
    here, there = _client(url, HERE), _client(url, THERE)
    first = here.create_queue(QueueName="orders")["QueueUrl"]
    assert "QueueUrls" not in there.list_queues()
    second = there.create_queue(QueueName="orders", Attributes={"DelaySeconds": "0"})["QueueUrl"]
    assert (first, second) == (f"{url}/{OWN}/orders", f"{url}/queue/{THERE}/{OWN}/orders")
    here.send_message(QueueUrl=first, MessageBody="here")
    there.send_message(QueueUrl=second, MessageBody="there")
    assert _bodies(there, second) == ["there"]
    assert _bodies(here, first) == ["here"]
    arns = [
        each.get_queue_attributes(QueueUrl=first, AttributeNames=["QueueArn"])["Attributes"]
        for each in (here, there)
    ]
    assert [arn["QueueArn"] for arn in arns] == [
        f"arn:aws:sqs:{HERE}:{OWN}:orders",
        f"arn:aws:sqs:{THERE}:{OWN}:orders",
    ]
    here.delete_queue(QueueUrl=first)
    assert "QueueUrls" not in here.list_queues()
    assert there.list_queues()["QueueUrls"] == [second]


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_R55_the_url_of_a_queue_names_its_region_also_to_clients_that_do_not_sign(
    protocol: str,
) -> None:
    with running_broker() as url, Client(url, protocol) as sqs:
        queue = _client(url, THERE).create_queue(QueueName="orders")["QueueUrl"]
        _client(url, HERE).create_queue(QueueName="orders")
        sqs("SendMessage", urlsplit(queue).path, MessageBody="a")
        assert _bodies(_client(url, HERE), queue) == []  # the signature counts for more
        assert _bodies(_client(url, THERE), queue) == ["a"]


def test_R55_dead_letters_and_move_tasks_stay_in_their_region(url: RunningBroker) -> None:
    here, there = _client(url, HERE), _client(url, THERE)
    for sqs in (here, there):
        sqs.create_queue(QueueName="dead")
    arn = f"arn:aws:sqs:{THERE}:{OWN}:dead"
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "1"}}'
    with pytest.raises(ClientError, match="Dead letter target does not exist"):
        here.create_queue(QueueName="orders", Attributes={"RedrivePolicy": policy})
    queue = there.create_queue(QueueName="orders", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    there.send_message(QueueUrl=queue, MessageBody="a")
    for _ in range(2):
        there.receive_message(QueueUrl=queue, VisibilityTimeout=0)
    dead = there.get_queue_url(QueueName="dead")["QueueUrl"]
    (message,) = there.receive_message(
        QueueUrl=dead, VisibilityTimeout=0, AttributeNames=["DeadLetterQueueSourceArn"]
    )["Messages"]
    source = f"arn:aws:sqs:{THERE}:{OWN}:orders"
    assert message["Attributes"] == {"DeadLetterQueueSourceArn": source}
    assert _bodies(here, dead) == []
    with pytest.raises(ClientError, match="doesn't exist"):
        here.start_message_move_task(SourceArn=arn)
    there.start_message_move_task(SourceArn=arn)
    found = there.receive_message(QueueUrl=queue, WaitTimeSeconds=10)["Messages"]
    assert [each["Body"] for each in found] == ["a"]


def test_R55_an_unsigned_request_is_for_the_region_that_is_configured() -> None:
    with running_broker() as url:
        with open_mailbox(f"{url}/orders", str) as box:
            box.send("from a mailbox")
        queue = _client(url, HERE).get_queue_url(QueueName="orders")["QueueUrl"]
        assert _bodies(_client(url, HERE), queue) == ["from a mailbox"]
        with pytest.raises(ClientError, match="does not exist"):
            _client(url, THERE).get_queue_url(QueueName="orders")


def test_R55_a_key_with_an_account_has_queues_of_its_own() -> None:
    with running_broker(keys=KEYS) as url:
        root, tenant, reader = (_client(url, HERE, key) for key in ("root", "tenant", "reader"))
        ours = root.create_queue(QueueName="orders")["QueueUrl"]
        theirs = tenant.create_queue(QueueName="orders")["QueueUrl"]
        assert (ours.split("/")[3], theirs.split("/")[3]) == (OWN, ELSE)
        tenant.send_message(QueueUrl=theirs, MessageBody="theirs")
        for sqs, queue in ((root, theirs), (tenant, ours)):
            with pytest.raises(ClientError, match="does not exist"):
                sqs.send_message(QueueUrl=queue, MessageBody="b")
        assert _bodies(root, ours) == []
        assert _bodies(reader, theirs) == ["theirs"]
        assert reader.list_queues()["QueueUrls"] == [theirs]
        with pytest.raises(ClientError, match="not authorized"):
            reader.send_message(QueueUrl=theirs, MessageBody="b")


def test_R55_a_key_with_an_account_is_for_SQS_clients_only() -> None:
    with (
        running_broker(keys=KEYS) as url,
        pytest.raises(Exception, match="for SQS clients only"),
        open_mailbox(str(url).replace("://", "://tenant:tenant-secret@") + "/orders", str) as box,
    ):
        box.send("a")


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_R115_a_limited_key_is_told_of_no_queue_of_another_account(shared: bool) -> None:
    keys = (*KEYS, Key("shop", "shop-secret", ("orders*",), ("read",)))
    store = RedisSharedStore(shared_server().url) if shared else None
    with running_broker(keys=keys, shared_store=store) as url:
        for key in ("root", "tenant"):
            _client(url, HERE, key).create_queue(QueueName="orders")
        found = list_queues(str(url).replace("://", "://shop:shop-secret@"))
        assert [line.name for line in found if line.name.endswith("orders")] == ["orders"]
        for key in ("root", "tenant"):  # the server is shared with other tests
            sqs = _client(url, HERE, key)
            sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName="orders")["QueueUrl"])


def test_R55_queues_of_other_regions_are_there_after_a_restart(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running_broker(data) as url:
        sqs = _client(url, THERE)
        queue = sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})
        sqs.send_message(
            QueueUrl=queue["QueueUrl"],
            MessageBody="a",
            MessageGroupId="g",
            MessageDeduplicationId="d",
        )
    with running_broker(data) as url:
        sqs = _client(url, THERE)
        (found,) = sqs.list_queues()["QueueUrls"]
        assert _bodies(sqs, found) == ["a"]


def test_R55_a_broker_may_have_a_region_that_AWS_does_not() -> None:
    with running_broker(region="Local_1") as url, Client(url) as sqs:
        assert sqs.bodies(sqs.create()) == []
