"""R35, R55: one queue, two doors: what comes in by SQS goes out by `BrokerMailbox`, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from pillarbox import open_mailbox
from pillarbox.testing.broker import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


@pytest.fixture(scope="module")
def sqs(broker: RunningBroker) -> Iterator[Any]:
    client = boto3.client(
        "sqs",
        endpoint_url=str(broker),
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )
    yield client
    client.close()


def test_R55_a_message_from_sqs_is_received_by_a_mailbox(broker: RunningBroker, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="from-sqs")["QueueUrl"]
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody="größe",
        MessageAttributes={
            "colour": {"DataType": "String", "StringValue": "red"},
            "Pillarbox.Priority": {"DataType": "Number", "StringValue": "9"},
        },
    )
    with open_mailbox(url, str) as box:
        (message,) = box.receive()
        assert (message.id, message.body, message.priority) == (sent["MessageId"], "größe", 9)
        assert message.attributes["colour"] == "red"
        assert message.acknowledge() is True
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_R55_a_message_from_a_mailbox_is_received_by_sqs(broker: RunningBroker, sqs: Any) -> None:
    with open_mailbox(f"{broker}/from-mailbox", str) as box:
        message_id = box.send("tea", attributes={"colour": "red"})
        url = sqs.get_queue_url(QueueName="from-mailbox")["QueueUrl"]
        (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
        assert (message["MessageId"], message["Body"]) == (message_id, "tea")
        assert message["MessageAttributes"]["colour"]["StringValue"] == "red"
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        assert box.stats().total == 0


def test_R55_a_long_poll_of_one_door_is_served_by_the_other(
    broker: RunningBroker, sqs: Any
) -> None:
    import threading

    with open_mailbox(f"{broker}/shared", str) as box:
        url = sqs.get_queue_url(QueueName="shared")["QueueUrl"]
        threading.Timer(
            0.05, lambda: sqs.send_message(QueueUrl=url, MessageBody="from sqs")
        ).start()
        (message,) = box.receive(wait_time_seconds=20)
        assert message.body == "from sqs"
