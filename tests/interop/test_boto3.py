"""boto3, which speaks SQS's JSON protocol: the life of messages through client and resource."""

from __future__ import annotations

import json
import threading
import time
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.interop.conftest import KEY_ID


@pytest.fixture
def sqs(endpoint: str) -> Any:
    return boto3.Session().client("sqs", endpoint_url=endpoint)


@pytest.fixture
def queue(sqs: Any) -> str:
    url: str = sqs.create_queue(QueueName=f"boto3-{uuid4()}")["QueueUrl"]
    return url


def test_R55_boto3_speaks_json(sqs: Any) -> None:
    assert sqs.meta.service_model.resolved_protocol == "json"


def test_R55_a_message_with_attributes_lives_and_dies(sqs: Any, queue: str) -> None:
    sent = sqs.send_message(
        QueueUrl=queue,
        MessageBody="grüße 🏤\r\n<&\"'>",
        MessageAttributes={
            "colour": {"DataType": "String", "StringValue": "röt"},
            "count": {"DataType": "Number.int", "StringValue": "7"},
            "data": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        },
    )
    (got,) = sqs.receive_message(
        QueueUrl=queue,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
        WaitTimeSeconds=5,
    )["Messages"]
    assert got["MessageId"] == sent["MessageId"]
    assert got["Body"] == "grüße 🏤\r\n<&\"'>"
    assert got["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert got["MessageAttributes"]["data"]["BinaryValue"] == b"\x00\xff"
    assert got["MessageAttributes"]["count"]["StringValue"] == "7"
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=got["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)


def test_R55_a_batch_fails_by_entry(sqs: Any, queue: str) -> None:
    answer = sqs.send_message_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "good", "MessageBody": "a"},
            {"Id": "bad", "MessageBody": "\x00"},
            {"Id": "late", "MessageBody": "b", "DelaySeconds": 900},
        ],
    )
    assert sorted(each["Id"] for each in answer["Successful"]) == ["good", "late"]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["SenderFault"]) == ("bad", True)


def test_R55_errors_have_the_classes_that_boto3_knows(sqs: Any, queue: str) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as missing:
        sqs.get_queue_url(QueueName="no-such-queue")
    assert missing.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle="garbage")
    with pytest.raises(sqs.exceptions.EmptyBatchRequest):
        sqs.delete_message_batch(QueueUrl=queue, Entries=[])
    sqs.purge_queue(QueueUrl=queue)
    with pytest.raises(sqs.exceptions.PurgeQueueInProgress):
        sqs.purge_queue(QueueUrl=queue)


def test_R59_who_signs_with_another_secret_is_not_let_in(endpoint: str) -> None:
    session = boto3.Session(aws_access_key_id=KEY_ID, aws_secret_access_key="guessed")
    stranger = session.client("sqs", endpoint_url=endpoint)
    with pytest.raises(ClientError) as refused:
        stranger.list_queues()
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_R14_a_parked_poll_is_answered_by_a_send(sqs: Any, queue: str) -> None:
    answers: list[dict[str, Any]] = []
    poll = threading.Thread(
        target=lambda: answers.append(sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20))
    )
    began = time.monotonic()
    poll.start()
    sqs.send_message(QueueUrl=queue, MessageBody="wake up")
    poll.join(15)
    assert time.monotonic() - began < 15
    assert [each["Body"] for each in answers[0]["Messages"]] == ["wake up"]


def test_R55_a_dead_letter_is_moved_back_by_a_task(sqs: Any, queue: str) -> None:
    dead = sqs.create_queue(QueueName="boto3-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": policy})
    sqs.send_message(QueueUrl=queue, MessageBody="poison")
    sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0, WaitTimeSeconds=5)
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    (letter,) = sqs.receive_message(
        QueueUrl=dead, VisibilityTimeout=0, MessageSystemAttributeNames=["All"], WaitTimeSeconds=5
    )["Messages"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(queue.rpartition("/")[2])
    sqs.start_message_move_task(SourceArn=arn)
    (back,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=10)["Messages"]
    assert back["Body"] == "poison"
    (task,) = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    assert task["ApproximateNumberOfMessagesMoved"] == 1


def test_R55_a_fifo_queue_keeps_order_and_drops_repetitions(sqs: Any) -> None:
    url = sqs.create_queue(
        QueueName="boto3-line.fifo",
        Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
    )["QueueUrl"]
    numbers = [
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")["SequenceNumber"]
        for body in ("1", "2", "2", "3")
    ]
    assert numbers[1] == numbers[2]
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5)["Messages"]
    assert [each["Body"] for each in got] == ["1", "2", "3"]


def test_R55_queues_are_listed_by_pages(sqs: Any) -> None:
    for number in range(7):
        sqs.create_queue(QueueName=f"paged-{number}")
    pages = list(
        sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix="paged-", PaginationConfig={"PageSize": 3}
        )
    )
    urls = [url for page in pages for url in page.get("QueueUrls", [])]
    assert [len(page.get("QueueUrls", [])) for page in pages][:2] == [3, 3]
    assert sorted(url.rpartition("/")[2] for url in urls) == [f"paged-{n}" for n in range(7)]


def test_R55_the_resource_of_boto3_works_too(endpoint: str) -> None:
    resource = boto3.Session().resource("sqs", endpoint_url=endpoint)
    queue = resource.create_queue(QueueName="by-resource", Attributes={"VisibilityTimeout": "60"})
    queue.send_message(MessageBody="hello")
    (message,) = queue.receive_messages(WaitTimeSeconds=5)
    assert message.body == "hello"
    message.change_visibility(VisibilityTimeout=0)
    (message,) = queue.receive_messages(WaitTimeSeconds=5)
    message.delete()
    queue.reload()
    assert queue.attributes["ApproximateNumberOfMessages"] == "0"
    assert queue.attributes["VisibilityTimeout"] == "60"
    queue.delete()
