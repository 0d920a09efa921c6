"""One queue of the broker through both of its faces: its own protocol, and SQS's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.testing.broker import running_broker

BODIES: list[tuple[Any, Any]] = [
    (dict, {"tea": 2, "für": "Ada"}),
    (str, "plain text"),
    (bytes, b"bytes that are text"),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_broker() as running:
        yield str(running)


@pytest.mark.parametrize(("body_type", "body"), BODIES, ids=str)
@pytest.mark.parametrize("way", ["from SQS's to ours", "from ours to SQS's"])
def test_R36_what_is_sent_through_one_face_is_received_through_the_other(
    url: str, way: str, body_type: Any, body: Any
) -> None:
    faces = [
        open_mailbox(f"sqs+{url}/{body_type.__name__}", body_type, create=True),
        open_mailbox(f"{url}/{body_type.__name__}", body_type),
    ]
    sender, receiver = faces if way == "from SQS's to ours" else reversed(faces)
    message_id = sender.send(body, attributes={"colour": "red"})
    (message,) = receiver.receive()
    assert (message.id, message.body, message.delivery_count) == (message_id, body, 1)
    assert dict(message.attributes) == {"colour": "red"}
    assert message.acknowledge() is True
    assert sender.approximate_count() == 0
    for face in faces:
        face.close()


def test_R38_bytes_that_are_no_text_are_read_through_sqs_s_face(url: str) -> None:
    with (
        open_mailbox(f"{url}/raw", bytes) as ours,
        open_mailbox(f"sqs+{url}/raw", bytes) as theirs,
    ):
        ours.send(b"\xff\x00")
        assert [message.body for message in theirs.receive()] == [b"\xff\x00"]


def test_R17_a_priority_given_through_sqs_s_face_counts_for_both(url: str) -> None:
    with (
        open_mailbox(f"sqs+{url}/urgent", str, create=True) as theirs,
        open_mailbox(f"{url}/urgent", str) as ours,
    ):
        theirs.send("low", priority=1)
        ours.send("middle", priority=5)
        theirs.send("high", priority=9)
        assert [message.body for message in ours.receive(max_messages=3)] == [
            "high",
            "middle",
            "low",
        ]
