"""Facts recorded from AWS that a first reading of its documentation gets wrong; both protocols."""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import pytest

from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import ACCOUNT, Client, Refused, World, eventually, text

_SIGNED = (
    "AWS4-HMAC-SHA256 Credential=k/20260101/{}/sqs/aws4_request, SignedHeaders=host, Signature=s"
)


def _get(sqs: Client, path: str, accept: str = "*/*", **form: str) -> tuple[int, bytes]:
    headers = {"Accept": accept, "Authorization": _SIGNED.format("us-east-1")}
    status, _, data = sqs.raw("GET", f"{path}?{urlencode(form)}", headers=headers)
    return status, data


def _in_json(sqs: Client, queue: str, action: str, **form: str) -> Any:
    path = queue.removeprefix(sqs.url)
    status, data = _get(sqs, path, "application/json", Action=action, **form)
    assert status == 200
    return json.loads(data)[f"{action}Response"].get(f"{action}Result")


# -- messages --------------------------------------------------------------------------------


def test_R150_attribute_names_have_letters_of_any_script(sqs: Client) -> None:
    queue = sqs.create()
    given = {"attr.1øßä": text("x"), "数": text("1", "Number")}
    sent = sqs.send(queue, "a", MessageAttributes=given)
    (message,) = sqs.receive(queue, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == given
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


@pytest.mark.parametrize("name", ["a§b", "a b", "a¹"])
def test_R150_and_nothing_else_but_digits_and_three_signs(sqs: Client, name: str) -> None:
    with pytest.raises(Refused, match="Invalid non-alphanumeric character"):
        sqs.send(sqs.create(), "a", MessageAttributes={name: text("x")})


def test_R150_a_message_that_is_too_long_has_other_words_in_a_batch(sqs: Client) -> None:
    queue = sqs.create(MaximumMessageSize=1024)
    reason = "Reason: Message must be shorter than 1024 bytes."
    with pytest.raises(Refused) as refused:
        sqs.send(queue, "a" * 1025)
    assert refused.value.message == f"One or more parameters are invalid. {reason}"
    entries = [{"Id": "a", "MessageBody": "a" * 1024}, {"Id": "b", "MessageBody": "a" * 1025}]
    answer = sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    (failed,) = answer["Failed"]
    assert failed["Code"] == "InvalidParameterValue"
    assert failed["Message"] == f"One or more parameters cannot be validated. {reason}"


# -- the query protocol ----------------------------------------------------------------------


def test_R150_an_empty_list_may_have_the_name_that_the_json_protocol_gives_it(sqs: Client) -> None:
    queue = sqs.create()
    path = queue.removeprefix(sqs.url)
    sqs.send(queue, "a", MessageAttributes={"n": text("x")})
    status, data = _get(sqs, path, Action="ReceiveMessage", MessageAttributeNames="")
    assert (status, b"<MessageAttribute>" in data) == (200, False)
    for action in ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        status, data = _get(sqs, path, Action=action, Entries="")
        assert (status, b"AWS.SimpleQueueService.EmptyBatchRequest" in data) == (400, True)
    status, data = _get(sqs, path, Action="SendMessage", MessageBody="b", MessageAttributes="")
    assert status == 200


def _post(sqs: Client, queue: str, form: str) -> tuple[int, str]:
    fields = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    status, _, data = sqs.raw("POST", queue.removeprefix(sqs.url), form.encode(), fields)
    return status, data.decode()


@pytest.mark.parametrize(
    ("tag", "key", "value"),
    [("Tag.1", "Key", "Value"), ("Tags.1", "Key", "Value"), ("Tags.entry.1", "key", "value")],
)
def test_R150_tags_have_the_names_that_SDKs_give_them(
    sqs: Client, tag: str, key: str, value: str
) -> None:
    """The AWS SDK for Java 1.x writes Tags.1.Key, others what the documentation says."""
    queue = sqs.create()
    form = f"Action=TagQueue&{tag}.{key}=colour&{tag}.{value}=red"
    assert _post(sqs, queue, form)[0] == 200
    assert sqs("ListQueueTags", QueueUrl=queue)["Tags"] == {"colour": "red"}
    for keys in ("TagKey.1", "TagKeys.1", "TagKeys.member.1", "TagKey"):
        sqs("TagQueue", QueueUrl=queue, Tags={"colour": "red"})
        assert _post(sqs, queue, f"Action=UntagQueue&{keys}=colour")[0] == 200
        assert "Tags" not in sqs("ListQueueTags", QueueUrl=queue)


@pytest.mark.parametrize("value", ["soon", "", "1.5", "{}"])
def test_R150_a_number_in_a_form_is_an_integer(sqs: Client, value: str) -> None:
    form = f"Action=ReceiveMessage&WaitTimeSeconds={value}"
    status, text_ = _post(sqs, sqs.create(), form)
    assert (status, "<Code>InvalidParameterValue</Code>" in text_) == (400, True)
    reason = f"Value {value} for parameter WaitTimeSeconds is invalid. Reason: Must be an integer."
    assert reason in text_


def test_R150_a_list_of_one_needs_no_number(sqs: Client) -> None:
    """boto 2 and AWS's own examples write it so."""
    queue = sqs.create()
    form = "Action=SetQueueAttributes&Attribute.Name=VisibilityTimeout&Attribute.Value=35"
    assert _post(sqs, queue, form)[0] == 200
    for form in ("AttributeName=VisibilityTimeout", "AttributeNames.1=VisibilityTimeout"):
        status, text_ = _post(sqs, queue, f"Action=GetQueueAttributes&{form}")
        assert (status, text_.count("<Attribute>"), "<Value>35<" in text_) == (200, 1, True)
    sqs.send(queue, "a", MessageAttributes={"n": text("x")})
    form = "Action=ReceiveMessage&AttributeName=SenderId&MessageAttributeName=All"
    status, text_ = _post(sqs, queue, form)
    assert (status, "<Name>SenderId</Name>" in text_, "<Name>n</Name>" in text_) == (
        200,
        True,
        True,
    )
    form = f"Action=AddPermission&Label=l&AWSAccountId={ACCOUNT}&ActionName=SendMessage"
    assert _post(sqs, queue, form)[0] == 200
    assert "SQS:SendMessage" in sqs.attributes(queue)["Policy"]


def test_R150_the_url_of_a_queue_may_end_with_a_slash(sqs: Client) -> None:
    """As it does in the examples of AWS's documentation."""
    queue = sqs.create()
    status, data = _get(
        sqs, queue.removeprefix(sqs.url) + "/", Action="SendMessage", MessageBody="a"
    )
    assert (status, b"<MD5OfMessageBody>" in data) == (200, True)
    assert sqs.bodies(f"{queue}/") == ["a"]


def test_R150_the_older_of_two_lists_of_names_takes_precedence_in_the_query_protocol(
    sqs: Client,
) -> None:
    queue = sqs.create(VisibilityTimeout=0)
    sqs.send(queue, "a")
    wanted: dict[str, Any] = {
        "AttributeNames": ["SenderId"],
        "MessageSystemAttributeNames": ["All"],
    }
    (message,) = sqs.receive(queue, **wanted)
    shown = 1 if sqs.protocol == "query" else 4
    assert len(message["Attributes"]) == shown
    (message,) = sqs.receive(queue, **{**wanted, "AttributeNames": []})
    assert len(message["Attributes"]) == 4


def test_R150_the_url_of_another_queue_can_be_asked_for_at_the_url_of_a_queue(sqs: Client) -> None:
    queue, other = sqs.create(), sqs.create()
    path, name = queue.removeprefix(sqs.url), other.rpartition("/")[2]
    for owner in ({}, {"QueueOwnerAWSAccountId": ACCOUNT}):
        status, data = _get(sqs, path, Action="GetQueueUrl", QueueName=name, **owner)
        assert (status, f"<QueueUrl>{other}</QueueUrl>".encode() in data) == (200, True)


def test_R150_a_query_answered_in_JSON_has_lists_of_pairs_and_nulls(sqs: Client) -> None:
    queue = sqs.create()
    assert _in_json(sqs, queue, "ReceiveMessage") == {"messages": None}
    sent = _in_json(sqs, queue, "SendMessage", MessageBody='"&quot;\r')
    assert uuid.UUID(sent.pop("MessageId")).version == 4
    assert sent.pop("MD5OfMessageBody")
    assert sent == {
        "MD5OfMessageAttributes": None,
        "MD5OfMessageSystemAttributes": None,
        "SequenceNumber": None,
    }
    (message,) = _in_json(sqs, queue, "ReceiveMessage", VisibilityTimeout="0")["messages"]
    assert message["Body"] == '"&quot;\r'
    assert (message["Attributes"], message["MessageAttributes"]) == (None, None)
    names = {"AttributeName.1": "ApproximateReceiveCount"}
    (message,) = _in_json(sqs, queue, "ReceiveMessage", **names)["messages"]
    assert message["Attributes"] == [{"Name": "ApproximateReceiveCount", "Value": "2"}]
    found = _in_json(sqs, queue, "GetQueueAttributes", **{"AttributeName.1": "QueueArn"})
    assert found == {"Attributes": [{"Name": "QueueArn", "Value": sqs.arn(queue)}]}
    assert _in_json(sqs, queue, "DeleteQueue") is None
    assert "queueUrls" in _in_json(sqs, sqs.url + "/", "ListQueues")


# -- partitions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("eu-west-3", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("us-iso-east-1", "aws-iso"),
    ],
)
def test_R150_an_arn_names_the_partition_of_its_region(
    broker: RunningBroker, region: str, partition: str
) -> None:
    boto3 = pytest.importorskip("boto3")
    options = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": region}
    sqs = boto3.client("sqs", endpoint_url=str(broker), **options)
    queue = sqs.create_queue(QueueName="here")["QueueUrl"]
    account = {"AWSAccountIds": [ACCOUNT], "Actions": ["*"]}
    sqs.add_permission(QueueUrl=queue, Label="all", **account)
    known = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    arn = f"arn:{partition}:sqs:{region}:{ACCOUNT}:here"
    assert known["QueueArn"] == arn
    policy = json.loads(known["Policy"])
    assert policy["Id"] == f"{arn}/SQSDefaultPolicy"
    assert policy["Statement"][0]["Principal"] == {"AWS": f"arn:{partition}:iam::{ACCOUNT}:root"}
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    source = sqs.create_queue(QueueName="there", Attributes={"RedrivePolicy": redrive})["QueueUrl"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=queue)["queueUrls"] == [source]
    sts = boto3.client("sts", endpoint_url=str(broker), **options)
    assert sts.get_caller_identity()["Arn"] == f"arn:{partition}:iam::{ACCOUNT}:root"


# -- move tasks ------------------------------------------------------------------------------


def test_R150_the_id_of_a_move_task_is_a_uuid(world: World) -> None:
    sqs = world.sqs
    dead = sqs.create()
    policy = {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1}
    sqs.create(RedrivePolicy=json.dumps(policy))
    handle = sqs("StartMessageMoveTask", SourceArn=sqs.arn(dead))["TaskHandle"]
    known = json.loads(b64decode(handle))
    assert known["sourceArn"] == sqs.arn(dead)
    assert str(uuid.UUID(known["taskId"])) == known["taskId"]


def test_R150_a_move_task_is_over_with_its_last_message(world: World) -> None:
    """Even if it is slow: the clock stands still, and the next one can start at once."""
    sqs, dead = world.sqs, world.sqs.create()
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1})
    queue = sqs.create(RedrivePolicy=policy, VisibilityTimeout=0)
    source = {"SourceArn": sqs.arn(dead)}

    def statuses() -> list[str]:
        listed = sqs("ListMessageMoveTasks", **source, MaxResults=10)["Results"]
        return [task["Status"] for task in listed]

    for round_ in range(1, 4):
        sqs.send(queue, "a")
        _die(sqs, queue)
        sqs("StartMessageMoveTask", **source, MaxNumberOfMessagesPerSecond=1)
        eventually(lambda: "RUNNING" not in statuses())
        assert statuses() == ["COMPLETED"] * round_
        (message,) = sqs.receive(queue)
        sqs.delete(queue, message)


def test_R150_a_task_handle_names_its_source_in_full(sqs: Client) -> None:
    name = sqs.create().rpartition("/")[2]
    for arn in (f"arn:aws:sqs:us-east-1:999999999999:{name}", f"arn:aws:sqs:eu-west-1:0:{name}"):
        known = json.dumps({"taskId": str(uuid.uuid4()), "sourceArn": arn})
        with pytest.raises(Refused) as refused:
            sqs("CancelMessageMoveTask", TaskHandle=b64encode(known.encode()).decode())
        assert (refused.value.status, refused.value.code) == (404, "ResourceNotFoundException")
        assert "SourceArn parameter doesn't exist" in refused.value.message


# -- chains of dead-letter queues ------------------------------------------------------------


def _chain(sqs: Client, fifo: bool = False) -> list[str]:
    """Three queues, each the dead-letter queue of the one before; any receive may be the last."""
    queues = [sqs.create(fifo=fifo, VisibilityTimeout=0) for _ in range(3)]
    for source, target in pairwise(queues):
        policy = {"deadLetterTargetArn": sqs.arn(target), "maxReceiveCount": 1}
        given = {"RedrivePolicy": json.dumps(policy)}
        sqs("SetQueueAttributes", QueueUrl=source, Attributes=given)
    return queues


def _die(sqs: Client, queue: str) -> dict[str, Any]:
    """Receive the only message, for the last time there."""
    (message,) = sqs.receive(queue, AttributeNames=["All"])
    assert sqs.receive(queue) == []
    return message


def test_R150_a_dead_letter_of_a_fifo_queue_has_its_id_for_deduplication(sqs: Client) -> None:
    source, dead, _ = _chain(sqs, fifo=True)
    options = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    sent = sqs.send(source, "a", **options)["MessageId"]
    assert _die(sqs, source)["Attributes"]["MessageDeduplicationId"] == "d"
    assert _die(sqs, dead)["Attributes"]["MessageDeduplicationId"] == sent
    sqs.send(dead, "another", **options)
    assert sqs.bodies(dead) == ["another"]


@pytest.mark.parametrize("fifo", [False, True])
def test_R39_a_message_goes_through_a_chain_of_dead_letter_queues(sqs: Client, fifo: bool) -> None:
    queues = _chain(sqs, fifo)
    options = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    sent = sqs.send(queues[0], "a", **options)
    first, second = _die(sqs, queues[0]), _die(sqs, queues[1])
    (third,) = sqs.receive(queues[2], AttributeNames=["All"])
    seen = [first, second, third]
    assert {message["MessageId"] for message in seen} == {sent["MessageId"]}
    counts = [message["Attributes"]["ApproximateReceiveCount"] for message in seen]
    assert counts == ["1", "2", "3"]
    sources = [message["Attributes"].get("DeadLetterQueueSourceArn") for message in seen]
    assert sources == [None, sqs.arn(queues[0]), sqs.arn(queues[1])]
    for at, expected in enumerate(([], queues[:1], queues[1:2])):
        listed = sqs("ListDeadLetterSourceQueues", QueueUrl=queues[at])
        assert listed.get("queueUrls", listed.get("QueueUrls", [])) == expected


def test_R39_a_move_goes_back_one_queue_of_a_chain(sqs: Client) -> None:
    queues = _chain(sqs)
    sqs.send(queues[0], "a")
    _die(sqs, queues[0])
    _die(sqs, queues[1])
    sqs("StartMessageMoveTask", SourceArn=sqs.arn(queues[2]))
    eventually(lambda: sqs.counts(queues[1])[0] == 1)
    assert _die(sqs, queues[1])["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs("StartMessageMoveTask", SourceArn=sqs.arn(queues[2]))
    eventually(lambda: sqs.counts(queues[1])[0] == 1)
    to = {"DestinationArn": sqs.arn(queues[0])}  # nobody knows any more where it came from
    sqs("StartMessageMoveTask", SourceArn=sqs.arn(queues[1]), **to)
    eventually(lambda: sqs.counts(queues[0])[0] == 1)


def test_R39_a_chain_of_dead_letter_queues_must_not_end_where_it_began(sqs: Client) -> None:
    queues = _chain(sqs)
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(queues[0]), "maxReceiveCount": 1})
    with pytest.raises(Refused, match="must not form a cycle") as refused:
        sqs("SetQueueAttributes", QueueUrl=queues[2], Attributes={"RedrivePolicy": policy})
    assert refused.value.code == "InvalidParameterValue"
    assert "RedrivePolicy" not in sqs.attributes(queues[2])


def test_R39_a_chain_of_dead_letter_queues_outlives_a_restart(store: str) -> None:
    with running_broker(store, "fsync") as url, Client(url) as sqs:
        queues = _chain(sqs)
        sqs.send(queues[0], "a")
        _die(sqs, queues[0])
    names = [queue.rpartition("/")[2] for queue in queues]
    with running_broker(store, "fsync") as url, Client(url) as sqs:
        second = _die(sqs, names[1])
        assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    with running_broker(store, "fsync") as url, Client(url) as sqs:
        (third,) = sqs.receive(names[2], AttributeNames=["All"])
        assert third["Attributes"]["ApproximateReceiveCount"] == "3"
        assert third["Attributes"]["DeadLetterQueueSourceArn"] == sqs.arn(names[1])
