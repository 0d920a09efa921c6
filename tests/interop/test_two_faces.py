"""One queue of the broker through both of its faces: its own protocol, and SQS's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import boto3
import pytest

from pillarbox import Mailbox, open_mailbox
from pillarbox.testing.broker import running_broker
from tests.interop.conftest import REGION

_numbers = count()
BODIES: list[tuple[Any, Any]] = [
    (dict, {"tea": 2, "für": "Ada"}),
    (list, [1, None]),
    (Any, "text in JSON"),
    (Any, None),
    (str, "plain text"),
    (str, ""),
    (str, "a character that\x00SQS can't carry"),
    (str, "(empty)"),
    (bytes, b"bytes that are text"),
    (bytes, b"\xff\x00 bytes that are not"),
    (bytes, b""),
    (bytes, b"/wA="),
]
ATTRIBUTES = {
    "none": {},
    "one": {"colour": "red"},
    "odd": {"größe": "7", "empty": "", "nul": "\x00", "a..b": "dots"},
    "many": {f"name-{n}": str(n) for n in range(14)},
}
# What SQS's users write is what they read, whatever names they choose for it.
ON_SQS: dict[str, dict[str, dict[str, Any]]] = {
    "types": {
        "n": {"DataType": "Number.int", "StringValue": "7"},
        "b": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
        "s": {"DataType": "String.x", "StringValue": "text"},
    },
    "ten and a reply": {
        **{f"name-{n}": {"DataType": "String", "StringValue": str(n)} for n in range(9)},
        "Pillarbox.ReplyTo": {"DataType": "String", "StringValue": "answers"},
    },
    "priority": {"Pillarbox.Priority": {"DataType": "Number", "StringValue": "200"}},
    "priority 0": {"Pillarbox.Priority": {"DataType": "Number", "StringValue": "0"}},
    "priority of another form": {"Pillarbox.Priority": {"DataType": "String", "StringValue": "07"}},
    "a reply that is bytes": {"Pillarbox.ReplyTo": {"DataType": "Binary", "BinaryValue": b"\xff"}},
    "no base64": {"Pillarbox.Encoding": {"DataType": "String", "StringValue": "base64"}},
    "an unknown form": {"Pillarbox.Encoding": {"DataType": "String", "StringValue": "rot13"}},
    "no JSON": {"Pillarbox.Attributes": {"DataType": "String", "StringValue": "{"}},
    "JSON with a name of ours": {
        "Pillarbox.Attributes": {"DataType": "String", "StringValue": '{"pillarbox.trace":"x"}'}
    },
    "a note of the store": {"pillarbox.reply_to": {"DataType": "String", "StringValue": "x"}},
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_broker(region=REGION) as running:  # that of the environment's SQS clients
        yield str(running)


@pytest.fixture(scope="module")
def sqs(url: str) -> Iterator[Any]:
    client = boto3.client(
        "sqs",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )
    yield client
    client.close()


def faces_of(url: str, way: str, body_type: Any, name: str = "") -> list[Mailbox[Any]]:
    """A sender and a receiver of one new queue."""
    name = name or f"q{next(_numbers)}"
    theirs = open_mailbox(f"sqs+{url}/{name}", body_type, create=True)
    ours = open_mailbox(f"{url}/{name}", body_type)
    return [theirs, ours] if way == "from SQS's to ours" else [ours, theirs]


both_ways = pytest.mark.parametrize("way", ["from SQS's to ours", "from ours to SQS's"])


@pytest.mark.parametrize(("body_type", "body"), BODIES, ids=str)
@both_ways
def test_R38_a_body_is_the_same_through_both_faces(
    url: str, way: str, body_type: Any, body: Any
) -> None:
    sender, receiver = faces_of(url, way, body_type)
    message_id = sender.send(body)
    (message,) = receiver.receive()
    assert (message.id, message.body, message.delivery_count) == (message_id, body, 1)
    assert (message.priority, message.reply_to, dict(message.attributes)) == (0, None, {})
    assert message.acknowledge() is True
    assert sender.approximate_count() == 0


@pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=ATTRIBUTES)
@both_ways
def test_R5_all_that_is_beside_a_body_is_the_same_through_both_faces(
    url: str, way: str, attributes: dict[str, str]
) -> None:
    sender, receiver = faces_of(url, way, bytes)
    sender.send(b"\xff", priority=9, attributes=attributes, reply_to="answers")
    (message,) = receiver.receive()
    assert (message.body, dict(message.attributes)) == (b"\xff", attributes)
    assert (message.priority, message.reply_to, message.in_reply_to) == (9, "answers", None)


@both_ways
def test_R18_deliveries_are_counted_through_both_faces(url: str, way: str) -> None:
    first, second = faces_of(url, way, str)
    first.send("tea")
    for number in range(1, 5):
        (message,) = (first if number % 2 else second).receive()
        assert message.delivery_count == number
        assert message.nack() is True


@pytest.mark.parametrize("answer", ["text", {"in": "JSON"}, 7], ids=str)
@pytest.mark.parametrize("reader", ["ours", "SQS's"])
@both_ways
def test_R21_an_answer_comes_through_whichever_face_it_is_read(
    url: str, way: str, reader: str, answer: Any
) -> None:
    name = f"answers{next(_numbers)}"
    sender, receiver = faces_of(url, way, str)
    with open_mailbox(f"sqs+{url}/{name}", Any, create=True) as theirs:
        box = theirs if reader == "SQS's" else open_mailbox(f"{url}/{name}", Any)
        asked = sender.send("how much?", reply_to=name)
        (question,) = receiver.receive()
        question.reply(answer)
        (message,) = box.receive(wait_time_seconds=20)
        assert (message.body, message.in_reply_to) == (answer, asked)


@pytest.mark.parametrize("form", ["{url}/{name}", "{url}/000000000000/{name}", "sqs+{url}/{name}"])
def test_R21_a_mailbox_answers_to_the_url_of_a_queue_of_its_broker(url: str, form: str) -> None:
    name = f"answers{next(_numbers)}"
    sender, receiver = faces_of(url, "from SQS's to ours", str)
    with open_mailbox(f"{url}/{name}", str) as answers:
        sender.send("ping", reply_to=form.format(url=url, name=name))
        receiver.receive()[0].reply("pong")
        assert [message.body for message in answers.receive(wait_time_seconds=20)] == ["pong"]


def test_R21_a_mailbox_refuses_to_answer_to_another_broker(url: str) -> None:
    sender, receiver = faces_of(url, "from SQS's to ours", str)
    sender.send("ping", reply_to="http://elsewhere:9324/answers")
    (message,) = receiver.receive()
    with pytest.raises(ValueError, match="reply_to"):
        message.reply("pong")


@both_ways
def test_R16_groups_are_the_same_through_both_faces(url: str, way: str) -> None:
    sender, receiver = faces_of(url, way, str, f"q{next(_numbers)}.fifo")
    sender.send("a1", group="a")
    sender.send("alone")
    found = {message.body: message.group for message in receiver.receive(max_messages=10)}
    assert found == {"a1": "a", "alone": None}


@pytest.mark.parametrize("noted", ON_SQS.values(), ids=ON_SQS)
def test_R55_what_boto3_sends_comes_back_to_boto3_as_it_was(
    sqs: Any, noted: dict[str, dict[str, Any]]
) -> None:
    queue = sqs.create_queue(QueueName=f"q{next(_numbers)}")["QueueUrl"]
    sent = sqs.send_message(QueueUrl=queue, MessageBody="no base64!", MessageAttributes=noted)
    (message,) = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])["Messages"]
    assert message["MessageAttributes"] == noted
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert (message["Body"], message["MD5OfBody"]) == ("no base64!", sent["MD5OfMessageBody"])


@pytest.mark.parametrize("noted", ON_SQS.values(), ids=ON_SQS)
def test_R55_names_of_ours_that_boto3_uses_are_no_attributes_to_a_mailbox(
    url: str, sqs: Any, noted: dict[str, dict[str, Any]]
) -> None:
    queue = sqs.create_queue(QueueName=f"q{next(_numbers)}")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="no base64!", MessageAttributes=noted)
    with open_mailbox(queue, str) as box:
        (message,) = box.receive()
    assert message.body == "no base64!"
    assert set(message.attributes) == {name for name in noted if "illarbox" not in name}
    assert message.attributes.get("b") in (None, "AP8=")
    assert message.reply_to == ("answers" if "name-0" in noted else None)


def test_R17_a_priority_given_through_either_face_counts_for_both(url: str) -> None:
    theirs, ours = faces_of(url, "from SQS's to ours", str)
    theirs.send("low", priority=1)
    ours.send("middle", priority=5)
    theirs.send("high", priority=9)
    found = [(message.body, message.priority) for message in ours.receive(max_messages=3)]
    assert found == [("high", 9), ("middle", 5), ("low", 1)]


def test_R17_the_priority_of_a_mailbox_is_told_to_boto3(url: str, sqs: Any) -> None:
    with open_mailbox(f"{url}/told", str) as box:
        box.send("tea", priority=7, reply_to="answers", attributes={"colour": "red"})
    queue = sqs.get_queue_url(QueueName="told")["QueueUrl"]
    (message,) = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])["Messages"]
    assert message["MessageAttributes"] == {
        "Pillarbox.Priority": {"DataType": "Number", "StringValue": "7"},
        "Pillarbox.ReplyTo": {"DataType": "String", "StringValue": "answers"},
        "colour": {"DataType": "String", "StringValue": "red"},
    }


def test_R14_a_long_poll_of_one_face_is_served_by_the_other(url: str, sqs: Any) -> None:
    import threading

    with open_mailbox(f"{url}/shared", str) as box:
        queue = sqs.get_queue_url(QueueName="shared")["QueueUrl"]
        send = threading.Timer(0.05, sqs.send_message, (), {"QueueUrl": queue, "MessageBody": "hi"})
        send.start()
        (message,) = box.receive(wait_time_seconds=20)
        assert message.body == "hi"
        send.join()
