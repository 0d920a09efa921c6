"""R11, R34, R36: what only a mailbox on SQS has, on our broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore import UNSIGNED

from pillarbox import (
    AsyncMailbox,
    DeadLetterPolicy,
    InvalidParameterError,
    Mailbox,
    MailboxError,
    open_async_mailbox,
    open_mailbox,
)
from pillarbox.mailbox.sqs import AsyncSQSMailbox, SQSMailbox, connection
from tests.sqs.conftest import Open
from tests.sqs.faulty_proxy import FaultyProxy, refusal


@pytest.fixture
def sqs(endpoint: str) -> Any:
    return boto3.Session().client("sqs", endpoint_url=endpoint, region_name="us-east-1")


def test_R36_a_url_opens_a_mailbox_on_sqs(endpoint: str) -> None:
    name = f"by-url-{uuid4()}"
    with open_mailbox(f"sqs+{endpoint}/{name}", dict, create=True) as box:
        assert isinstance(box, SQSMailbox)
        assert isinstance(box, Mailbox)
        box.send({"tea": 2})
        assert [m.body for m in box.receive()] == [{"tea": 2}]
    box = open_async_mailbox(f"sqs+{endpoint}/{name}", dict)
    assert isinstance(box, AsyncSQSMailbox)
    assert isinstance(box, AsyncMailbox)


def test_R34_a_queue_is_opened_by_name_arn_and_url(open_box: Open, sqs: Any) -> None:
    box = open_box()
    box.send("a")
    url = sqs.get_queue_url(QueueName=box.name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    for where in (box.name, arn["QueueArn"], url):
        other = open_box(name=where, create=False)
        assert (other.name, other.approximate_count()) == (box.name, 1)


def test_R34_an_unknown_option_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="endpoint") as refused:
        SQSMailbox("orders", str, endpont="http://127.0.0.1:1")  # type: ignore[call-arg]
    assert refused.value.parameter == "option"


def test_R38_the_type_may_stand_in_brackets(open_box: Open, endpoint: str) -> None:
    box = SQSMailbox[list[int]](open_box().name, endpoint=endpoint)
    box.send([1, 2])
    assert [m.body for m in box.receive()] == [[1, 2]]


def test_R34_others_read_what_we_send_and_we_read_what_they_send(open_box: Open, sqs: Any) -> None:
    box = open_box(dict)
    url = sqs.get_queue_url(QueueName=box.name)["QueueUrl"]
    box.send({"tea": 2}, attributes={"colour": "red"}, priority=7)
    (theirs,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert json.loads(theirs["Body"]) == {"tea": 2}
    assert theirs["MessageAttributes"]["colour"]["StringValue"] == "red"
    assert theirs["MessageAttributes"]["Pillarbox.Priority"] == {
        "DataType": "Number",
        "StringValue": "7",
    }
    sqs.send_message(
        QueueUrl=url,
        MessageBody='{"cups": 3}',
        MessageAttributes={"size": {"DataType": "Number", "StringValue": "1.5"}},
    )
    (ours,) = box.receive()
    assert (ours.body, dict(ours.attributes)) == ({"cups": 3}, {"size": "1.5"})


def test_R39_a_policy_is_written_to_the_queue_and_read_from_it(open_box: Open, sqs: Any) -> None:
    box = open_box(dead_letters=DeadLetterPolicy(4, f"dead-{uuid4()}"))
    url = sqs.get_queue_url(QueueName=box.name)["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert int(json.loads(found["RedrivePolicy"])["maxReceiveCount"]) == 4
    other = open_box(name=box.name, create=False)
    assert other.dead_letters is not None
    assert box.dead_letters is not None
    assert other.dead_letters.name == box.dead_letters.name


def test_R39_a_policy_that_the_queue_has_already_is_not_written_again(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    policy = DeadLetterPolicy(4)
    box = behind_proxy(dead_letters=policy)
    assert behind_proxy(name=box.name, dead_letters=policy).dead_letters is not None
    proxy.faults["SetQueueAttributes"] = [refusal(403, "AccessDenied")]
    behind_proxy(name=box.name, dead_letters=policy, create=False)
    with pytest.raises(MailboxError, match="sqs:SetQueueAttributes"):
        behind_proxy(name=box.name, dead_letters=DeadLetterPolicy(5), create=False)


def test_R39_a_dead_letter_knows_where_it_died(open_box: Open) -> None:
    box = open_box(dead_letters=DeadLetterPolicy(1))
    box.send("a")
    (message,) = box.receive()
    message.nack()
    assert list(box.receive()) == []
    letters = box.dead_letters
    assert letters is not None
    (letter,) = letters.receive()
    assert letter.dead_letter is not None
    assert letter.dead_letter.source == box.name
    assert box.stats().dead == 1


def test_R11_batches_are_split_by_ten_and_by_size(behind_proxy: Open, proxy: FaultyProxy) -> None:
    box = behind_proxy()
    box.send_many([str(n) for n in range(21)])
    assert proxy.calls["SendMessageBatch"] == 3
    proxy.calls.clear()
    big = "x" * 400_000
    box.send_many([big, big, big, "small", "small"])
    assert proxy.calls["SendMessageBatch"] == 2
    proxy.calls.clear()
    messages = box.receive(max_messages=26)
    assert (len(messages), proxy.calls["ReceiveMessage"]) == (26, 3)
    assert box.acknowledge_many(messages) == [True] * 26
    assert proxy.calls["DeleteMessageBatch"] == 3


def test_R11_one_receive_of_up_to_ten_is_one_call(behind_proxy: Open, proxy: FaultyProxy) -> None:
    box = behind_proxy()
    box.send_many(["a", "b", "c"])
    proxy.calls.clear()
    assert len(box.receive(max_messages=10, wait_time_seconds=20)) == 3
    assert proxy.calls == {"ReceiveMessage": 1}


def test_R8_a_lease_can_be_extended_to_the_last_of_its_twelve_hours(open_box: Open) -> None:
    box = open_box()
    box.send("a")
    (message,) = box.receive()
    assert message.extend_visibility(43_200) is True
    assert message.acknowledge() is True


def test_R100_a_lease_keeper_and_its_worker_do_not_disturb_one_another(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    """A message is acknowledged while its lease is being extended."""
    box = behind_proxy()
    box.send("a")
    (message,) = box.receive()
    answers: list[bool] = []

    def acknowledged_meanwhile(ask: Any, forward: Any) -> Any:
        answers.append(message.acknowledge())
        return forward(ask)

    proxy.faults["ChangeMessageVisibility"] = [acknowledged_meanwhile]
    extended = message.extend_visibility(60)
    assert answers == [True]
    assert extended is False
    assert box.approximate_count() == 0


def test_R16_a_message_without_a_group_waits_for_nobody_in_a_fifo_queue(open_box: Open) -> None:
    box = open_box(suffix=".fifo")
    box.send("a")
    box.send("b")
    first, second = (*box.receive(), *box.receive())
    assert [(m.body, m.group) for m in (first, second)] == [("a", None), ("b", None)]


def test_R34_a_server_of_one_s_own_is_asked_unsigned_where_there_are_no_keys(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    connection.client_of.cache_clear()
    try:
        with SQSMailbox(f"unsigned-{uuid4()}", str, endpoint=endpoint, create=True) as box:
            client = connection.shared_client(*box._connection.target)
            assert client.meta.config.signature_version is UNSIGNED
            box.send("a")
            assert [m.body for m in box.receive()] == ["a"]
    finally:
        connection.client_of.cache_clear()


def test_R20_a_process_that_was_forked_has_connections_of_its_own(
    open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = open_box()
    mine = connection.shared_client(*box._connection.target)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert connection.shared_client(*box._connection.target) is not mine
    assert box.send("from the child")


def test_R34_without_its_extra_the_error_names_the_pip_command() -> None:
    code = "import sys; sys.modules['boto3'] = None; import pillarbox.mailbox.sqs"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'pillarbox[sqs]'" in done.stderr
