"""Answers as AWS gives them, where emulators and first guesses go wrong; over both protocols."""

from __future__ import annotations

import json
import uuid
from itertools import count
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.testing.broker import RunningBroker
from tests.broker.support import ACCOUNT, Client, Refused, World, eventually, text

ENTRY = "SendMessageBatchRequestEntry"


def _change(sqs: Client, queue: str, message: dict[str, Any], seconds: int) -> None:
    handle = message["ReceiptHandle"]
    sqs(
        "ChangeMessageVisibility",
        QueueUrl=queue,
        ReceiptHandle=handle,
        VisibilityTimeout=seconds,
    )


def _group(sqs: Client, queue: str, *bodies: str) -> None:
    """Send messages whose bodies begin with their group."""
    for body in bodies:
        sqs.send(queue, body, MessageGroupId=body[:2], MessageDeduplicationId=body)


# -- ids -------------------------------------------------------------------------------------


def test_R150_a_message_id_is_a_uuid_the_same_wherever_the_message_goes(world: World) -> None:
    sqs = world.sqs
    dead = sqs.create()
    policy = {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1}
    queue = sqs.create(RedrivePolicy=json.dumps(policy))
    sent = sqs.send(queue, "a")["MessageId"]
    assert (uuid.UUID(sent).version, str(uuid.UUID(sent))) == (4, sent)
    assert [m["MessageId"] for m in sqs.receive(queue, VisibilityTimeout=1)] == [sent]
    world.clock.advance(2)
    assert sqs.receive(queue) == []
    assert [m["MessageId"] for m in sqs.receive(dead, VisibilityTimeout=0)] == [sent]
    sqs("StartMessageMoveTask", SourceArn=sqs.arn(dead))
    (back,) = sqs.receive(queue, WaitTimeSeconds=20, VisibilityTimeout=0)
    assert back["MessageId"] == sent
    name = queue.rpartition("/")[2]
    with open_mailbox(f"{world.url}/{name}", str) as box:
        assert [m.id for m in box.peek(5)] == [sent]
        assert box.delete([sent]) == 1
    assert sqs.counts(queue) == (0, 0, 0)


def test_R150_the_ids_of_a_batch_are_uuids(sqs: Client) -> None:
    queue = sqs.create()
    entries = [{"Id": f"e{n}", "MessageBody": f"{n}"} for n in range(3)]
    answer = sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    ids = [each["MessageId"] for each in answer["Successful"]]
    assert {uuid.UUID(each).version for each in ids} == {4}
    assert [m["MessageId"] for m in sqs.receive(queue)] == ids


# -- attributes of queues --------------------------------------------------------------------


def test_R150_booleans_are_kept_in_lower_case(sqs: Client) -> None:
    queue = sqs.create(fifo=True, FifoQueue="True", ContentBasedDeduplication="TRUE")
    known = sqs.attributes(queue)
    assert (known["FifoQueue"], known["ContentBasedDeduplication"]) == ("true", "true")
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"SqsManagedSseEnabled": "False"})
    assert sqs.attributes(queue)["SqsManagedSseEnabled"] == "false"


def test_R150_the_period_of_a_data_key_shows_only_with_a_key(sqs: Client) -> None:
    queue = sqs.create(KmsDataKeyReusePeriodSeconds="600")
    assert "KmsDataKeyReusePeriodSeconds" not in sqs.attributes(queue)
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"KmsMasterKeyId": "alias/k"})
    assert sqs.attributes(queue)["KmsDataKeyReusePeriodSeconds"] == "600"


@pytest.mark.parametrize(
    ("name", "value"), [("DeduplicationScope", "queue"), ("FifoThroughputLimit", "perQueue")]
)
def test_R150_what_only_fifo_queues_have_is_refused_in_words_of_its_own(
    sqs: Client, name: str, value: str
) -> None:
    expected = f"You can specify the {name} only when FifoQueue is set to true."
    queue = sqs.create()
    for ask in (
        lambda: sqs.create(**{name: value}),
        lambda: sqs("SetQueueAttributes", QueueUrl=queue, Attributes={name: value}),
    ):
        with pytest.raises(Refused) as refused:
            ask()
        assert (refused.value.code, refused.value.message) == ("InvalidAttributeName", expected)


def test_R150_high_throughput_needs_its_scope(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    with pytest.raises(Refused) as refused:
        sqs(
            "SetQueueAttributes",
            QueueUrl=queue,
            Attributes={"FifoThroughputLimit": "perMessageGroupId"},
        )
    assert refused.value.code == "InvalidAttributeValue"
    assert refused.value.message == (
        "Invalid value for the parameter FifoThroughputLimit. Reason: To set FifoThroughputLimit "
        "to perMessageGroupId, the DeduplicationScope must be messageGroup."
    )


def test_R150_another_scope_of_duplicates_takes_effect_after_a_minute(world: World) -> None:
    sqs, names = world.sqs, count()
    queue = sqs.create(fifo=True)

    def sent(group: str, name: str) -> str:
        options = {"MessageGroupId": group, "MessageDeduplicationId": name}
        return str(sqs.send(queue, "a", **options)["MessageId"])

    def is_by_group() -> bool:
        name = f"new{next(names)}"
        return sent("g1", name) != sent("g2", name)

    def switch(scope: str, limit: str) -> None:
        given = {"DeduplicationScope": scope, "FifoThroughputLimit": limit}
        sqs("SetQueueAttributes", QueueUrl=queue, Attributes=given)
        assert sqs.attributes(queue, *given) == given

    assert sent("g1", "d") == sent("g2", "d")
    switch("messageGroup", "perMessageGroupId")
    assert not is_by_group()
    world.clock.advance(61)
    eventually(is_by_group)
    first, second = sent("g1", "d"), sent("g2", "d")
    assert first != second
    assert (sent("g1", "d"), sent("g2", "d")) == (first, second)
    switch("queue", "perQueue")
    assert is_by_group()
    world.clock.advance(61)
    eventually(lambda: not is_by_group())


def test_R150_a_redrive_policy_takes_a_count_as_text_and_shows_a_number(sqs: Client) -> None:
    dead = sqs.create()
    policy = {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": "3"}
    queue = sqs.create(RedrivePolicy=json.dumps(policy))
    assert json.loads(sqs.attributes(queue)["RedrivePolicy"])["maxReceiveCount"] == 3
    name, same = queue.rpartition("/")[2], json.dumps({**policy, "maxReceiveCount": 3})
    again = sqs("CreateQueue", QueueName=name, Attributes={"RedrivePolicy": same})
    assert again["QueueUrl"] == queue
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in sqs.attributes(queue)


def test_R150_a_queue_may_be_its_own_dead_letter_queue(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(VisibilityTimeout="1")
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(queue), "maxReceiveCount": 1})
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"RedrivePolicy": policy})
    assert json.loads(sqs.attributes(queue)["RedrivePolicy"]) == json.loads(policy)
    sqs.send(queue, "a")
    for _ in range(3):
        assert sqs.bodies(queue) == ["a"]
        world.clock.advance(2)


# -- receipt handles -------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
def test_R150_any_handle_a_message_ever_had_deletes_it(world: World, held: bool) -> None:
    sqs, queue = world.sqs, world.sqs.create(VisibilityTimeout="5")
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue)
    world.clock.advance(6)
    if held:
        sqs.receive(queue)
    sqs.delete(queue, message)
    assert sqs.counts(queue) == (0, 0, 0)
    sqs.delete(queue, message)


@pytest.mark.parametrize("held", [False, True])
def test_R150_any_handle_a_message_ever_had_sets_its_visibility(world: World, held: bool) -> None:
    sqs, queue = world.sqs, world.sqs.create(VisibilityTimeout="5")
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue)
    world.clock.advance(6)
    if held:
        sqs.receive(queue)
    _change(sqs, queue, message, 100)
    assert sqs.counts(queue) == (0, 1, 0)
    world.clock.advance(99)
    assert sqs.bodies(queue) == []
    _change(sqs, queue, message, 0)
    (again,) = sqs.receive(queue, AttributeNames=["ApproximateReceiveCount"])
    assert int(again["Attributes"]["ApproximateReceiveCount"]) == 2 + held


def test_R150_a_message_hidden_by_an_old_handle_comes_back_in_time_and_uncounted(
    world: World,
) -> None:
    sqs, queue = world.sqs, world.sqs.create(VisibilityTimeout="5")
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue)
    world.clock.advance(6)
    entries = [{"Id": "x", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 30}]
    answer = sqs("ChangeMessageVisibilityBatch", QueueUrl=queue, Entries=entries)
    assert answer == {"Successful": [{"Id": "x"}]}
    world.clock.advance(31)
    (again,) = sqs.receive(queue, AttributeNames=["All"])
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_R150_on_a_fifo_queue_a_late_delete_is_refused(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True, VisibilityTimeout="5")
    _group(sqs, queue, "g1-m1")
    (message,) = sqs.receive(queue)
    world.clock.advance(6)
    with pytest.raises(Refused) as refused:
        sqs.delete(queue, message)
    assert refused.value.code == "InvalidParameterValue"
    assert refused.value.message.endswith("Reason: The receipt handle has expired.")
    with pytest.raises(Refused, match="not available for visibility timeout change"):
        _change(sqs, queue, message, 10)


# -- order -----------------------------------------------------------------------------------


def test_R150_what_comes_back_stands_before_what_was_sent_meanwhile(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(VisibilityTimeout="5")
    for body in "ab":
        sqs.send(queue, body)
    sqs.receive(queue)
    sqs.send(queue, "c")
    world.clock.advance(6)
    assert sqs.bodies(queue) == ["a", "b", "c"]


def test_R150_a_receive_for_no_time_puts_groups_behind_those_that_wait(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    _group(sqs, queue, "g1-m1", "g2-m1", "g2-m2", "g3-m1", "g1-m2")
    assert sqs.bodies(queue, 3, VisibilityTimeout=0) == ["g1-m1", "g1-m2", "g2-m1"]
    expected = ["g3-m1", "g1-m1", "g1-m2", "g2-m1", "g2-m2"]
    assert sqs.bodies(queue, VisibilityTimeout=0) == expected


def test_R150_what_a_fifo_group_gave_back_is_visible_while_the_rest_is_not(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    _group(sqs, queue, "g1-m1", "g1-m2", "g2-m1")
    first, _ = sqs.receive(queue, 2)
    _change(sqs, queue, first, 0)
    assert sqs.bodies(queue, 3) == ["g2-m1", "g1-m1"]


def test_R150_what_follows_a_held_message_of_its_group_waits(world: World) -> None:
    for held, expected in enumerate(([], ["g1-a"], ["g1-a", "g1-b"])):
        sqs, queue = world.sqs, world.sqs.create(fifo=True, VisibilityTimeout="1")
        _group(sqs, queue, "g1-a", "g1-b", "g1-c")
        _change(sqs, queue, sqs.receive(queue)[held], 4)
        world.clock.advance(2)
        assert sqs.bodies(queue) == expected
        world.clock.advance(5)
        assert sqs.bodies(queue) == ["g1-a", "g1-b", "g1-c"]


def test_R150_no_delay_on_a_message_means_that_of_its_fifo_queue(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True, DelaySeconds="5")
    sqs.send(queue, "a", MessageGroupId="g", MessageDeduplicationId="a", DelaySeconds=0)
    assert sqs.bodies(queue) == []
    world.clock.advance(6)
    assert sqs.bodies(queue) == ["a"]


def test_R150_a_batch_with_an_entry_that_lacks_its_group_fails_whole(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    entries = [
        {"Id": "a", "MessageBody": "a", "MessageGroupId": "g", "MessageDeduplicationId": "a"},
        {"Id": "b", "MessageBody": "b", "MessageDeduplicationId": "b"},
    ]
    with pytest.raises(Refused) as refused:
        sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    assert (refused.value.code, refused.value.message) == (
        "InvalidParameterValue",
        "The request must contain the parameter MessageGroupId.",
    )
    assert sqs.counts(queue) == (0, 0, 0)


def test_R150_an_oversized_entry_makes_the_whole_batch_too_long(sqs: Client) -> None:
    queue = sqs.create()
    entries = [{"Id": "a", "MessageBody": "a" * 1_048_577}]
    with pytest.raises(Refused) as refused:
        sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    assert refused.value.code == "AWS.SimpleQueueService.BatchRequestTooLong"
    assert refused.value.message.endswith("You have sent 1048577 bytes.")


def _flood(sqs: Client, queue: str, count: int) -> None:
    """One tenant sends so many messages."""
    for _ in range(count // 10):
        entries = [
            {"Id": f"e{i}", "MessageBody": "flood", "MessageGroupId": "flood"} for i in range(10)
        ]
        sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)


def _next_tenant(sqs: Client, queue: str) -> str:
    """Whose message is delivered first once another tenant has sent one."""
    sqs.send(queue, "quiet", MessageGroupId="other")
    (found,) = sqs.receive(queue, 1, AttributeNames=["MessageGroupId"])
    return str(found["Attributes"]["MessageGroupId"])


def test_R151_a_tenant_that_holds_too_much_waits_behind_the_others(sqs: Client) -> None:
    queue = sqs.create()
    _flood(sqs, queue, 40)
    for _ in range(3):
        assert len(sqs.receive(queue)) == 10
    sqs.send(queue, "quiet", MessageGroupId="other")
    found = sqs.receive(queue, 2, AttributeNames=["MessageGroupId"])
    assert [m["Attributes"]["MessageGroupId"] for m in found] == ["other", "flood"]


def test_R151_a_tenant_holds_no_longer_what_it_deleted_or_gave_back(sqs: Client) -> None:
    queue = sqs.create()
    _flood(sqs, queue, 40)
    held = [message for _ in range(3) for message in sqs.receive(queue)]
    sqs.delete(queue, held[0])
    assert _next_tenant(sqs, queue) == "flood"
    assert _next_tenant(sqs, queue) == "other"
    _change(sqs, queue, held[1], 0)
    assert _next_tenant(sqs, queue) == "flood"
    assert _next_tenant(sqs, queue) == "other"
    _change(sqs, queue, held[2], 0)
    _change(sqs, queue, held[2], 60)  # hidden by a handle whose lease is over, and so held
    assert _next_tenant(sqs, queue) == "other"


def test_R151_a_dead_letter_keeps_its_tenant_and_is_held_no_longer(sqs: Client) -> None:
    dead = sqs.create()
    policy = {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1}
    queue = sqs.create(RedrivePolicy=json.dumps(policy))
    _flood(sqs, queue, 50)
    held = [message for _ in range(3) for message in sqs.receive(queue)]
    for message in held[:10]:
        _change(sqs, queue, message, 0)
    assert len(sqs.receive(queue)) == 10, "ten died in its place"
    eventually(lambda: sqs.counts(dead)[0] == 10)
    assert _next_tenant(sqs, queue) == "other", "it holds thirty again"
    sqs.delete(queue, held[-1])
    assert _next_tenant(sqs, queue) == "flood"
    _flood(sqs, dead, 40)
    found = [sqs.receive(dead, AttributeNames=["MessageGroupId"]) for _ in range(3)]
    assert {m["Attributes"]["MessageGroupId"] for each in found for m in each} == {"flood"}
    assert _next_tenant(sqs, dead) == "other", "of those thirty, ten are dead letters"
    sqs.delete(dead, found[0][0])
    assert _next_tenant(sqs, dead) == "flood"
    sqs("PurgeQueue", QueueUrl=dead)
    assert _next_tenant(sqs, dead) == "other"


def test_R151_quiet_tenants_go_first_while_one_has_sent_thousands(sqs: Client) -> None:
    queue, numbers = sqs.create(VisibilityTimeout=3_600), count()
    _flood(sqs, queue, 3_000)
    for _ in range(3):
        assert sqs.bodies(queue) == ["flood"] * 10
    for tenant in [f"tenant{n}" for n in range(20)] * 2:
        body = f"{tenant} {next(numbers)}"
        sqs.send(queue, body, MessageGroupId=tenant)
        sqs.send(queue, "nobody's")
        assert sqs.bodies(queue, 3) == [body, "nobody's", "flood"]


# -- attributes of messages ------------------------------------------------------------------


def test_R150_the_trace_header_of_a_request_becomes_a_system_attribute(
    broker: RunningBroker, sqs: Client
) -> None:
    queue, trace = sqs.create(), "Root=1-5759e988-bd862e3fe1be46a994272793"
    body = json.dumps({"QueueUrl": queue, "MessageBody": "a"}).encode()
    headers = {
        "X-Amz-Target": "AmazonSQS.SendMessage",
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amzn-Trace-Id": trace,
    }
    status, _, data = sqs.raw("POST", "/", body, headers)
    assert status == 200
    assert "MD5OfMessageSystemAttributes" not in json.loads(data)
    given = {"AWSTraceHeader": text("Root=2-other")}
    body = json.dumps(
        {"QueueUrl": queue, "MessageBody": "b", "MessageSystemAttributes": given}
    ).encode()
    assert sqs.raw("POST", "/", body, headers)[0] == 200
    found = sqs.receive(queue, MessageSystemAttributeNames=["AWSTraceHeader"])
    assert [m["Attributes"] for m in found] == [
        {"AWSTraceHeader": trace},
        {"AWSTraceHeader": "Root=2-other"},
    ]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["All"], ["General", "Hello", "Help.Me"]),
        (["*"], ["General", "Hello", "Help.Me"]),
        ([".*"], ["General", "Hello", "Help.Me"]),
        (["Hel.*"], ["Hello", "Help.Me"]),
        (["Hello", "Nothing"], ["Hello"]),
        (["AWS."], []),
        ([".."], []),
    ],
)
def test_R150_names_of_message_attributes_may_be_patterns(
    sqs: Client, wanted: list[str], expected: list[str]
) -> None:
    queue = sqs.create()
    given = {name: text("v") for name in ("General", "Hello", "Help.Me")}
    sqs.send(queue, "a", MessageAttributes=given)
    (message,) = sqs.receive(queue, MessageAttributeNames=wanted)
    assert sorted(message.get("MessageAttributes", {})) == expected


@pytest.mark.parametrize("values", [["x"], []])
def test_R150_list_values_of_message_attributes_are_not_supported(
    sqs: Client, values: list[str]
) -> None:
    queue, given = sqs.create(), {"n": {**text("x"), "StringListValues": values}}
    if not values:  # as some SDKs write what is not set
        sqs.send(queue, "a", MessageAttributes=given)
        return
    with pytest.raises(Refused) as refused:
        sqs.send(queue, "a", MessageAttributes=given)
    assert refused.value.code == "AWS.SimpleQueueService.UnsupportedOperation"
    assert refused.value.message == (
        "Message attribute list values in SendMessage operation are not supported."
    )


# -- tags and permissions --------------------------------------------------------------------


def test_R150_tags_may_have_letters_of_any_script(sqs: Client) -> None:
    queue, tags = sqs.create(), {"Größe 数:a/b": "x_y.z = 1+2-3 @ ж", "empty": ""}
    sqs("TagQueue", QueueUrl=queue, Tags=tags)
    assert sqs("ListQueueTags", QueueUrl=queue)["Tags"] == tags


def test_R150_tags_and_permissions_are_refused_in_the_words_of_AWS(sqs: Client) -> None:
    queue = sqs.create()
    name = queue.rpartition("/")[2]
    permission = {"Label": "l", "AWSAccountIds": [ACCOUNT]}
    asked: list[tuple[str, dict[str, Any], str]] = [
        (
            "TagQueue",
            {"Tags": {f"t{n}": "v" for n in range(51)}},
            f"Too many tags added for queue {name}.",
        ),
        (
            "UntagQueue",
            {"TagKeys": []},
            "Tag keys must be between 1 and 128 characters in length.",
        ),
        ("AddPermission", permission, "The request must contain the parameter Actions."),
        (
            "AddPermission",
            {"Label": "l", "AWSAccountIds": [], "Actions": ["SendMessage"]},
            "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
    ]
    for action, parameters, message in asked:
        with pytest.raises(Refused) as refused:
            sqs(action, QueueUrl=queue, **parameters)
        assert refused.value.message == message


# -- the query protocol ----------------------------------------------------------------------


def _query(sqs: Client, path: str, **form: str) -> tuple[int, bytes]:
    body = "&".join(f"{name}={value}" for name, value in form.items()).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    status, _, data = sqs.raw("POST", path, body, headers)
    return status, data


def test_R150_an_empty_list_parameter_is_an_empty_list(sqs: Client) -> None:
    queue = sqs.create()
    path = queue.removeprefix(sqs.url)
    status, data = _query(sqs, path, Action="SendMessageBatch", **{ENTRY: ""})
    assert status == 400
    assert b"AWS.SimpleQueueService.EmptyBatchRequest" in data
    status, data = _query(sqs, path, Action="GetQueueAttributes", AttributeName="")
    assert (status, b"<GetQueueAttributesResult/>" in data) == (200, True)


def test_R150_an_empty_receive_is_an_empty_element(sqs: Client) -> None:
    queue = sqs.create()
    status, data = _query(sqs, queue.removeprefix(sqs.url), Action="ReceiveMessage")
    assert (status, b"<ReceiveMessageResult/>" in data) == (200, True)


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues"])
def test_R150_an_action_that_is_no_queues_is_refused_at_its_url(sqs: Client, action: str) -> None:
    queue = sqs.create()
    status, data = _query(sqs, queue.removeprefix(sqs.url), Action=action, QueueName="other")
    assert status == 400
    assert b"<Code>InvalidAction</Code>" in data
    assert f"The action {action} is not valid for this endpoint.".encode() in data


@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_R150_without_an_action_there_is_one_answer(sqs: Client, accept: str) -> None:
    queue = sqs.create()
    path = queue.removeprefix(sqs.url)
    status, _, data = sqs.raw("GET", path, headers={"Accept": accept})
    assert (status, data.strip()) == (404, b"<UnknownOperationException/>")


# -- who asks --------------------------------------------------------------------------------


def test_R150_sts_tells_who_asks(broker: RunningBroker) -> None:
    boto3 = pytest.importorskip("boto3")
    sts = boto3.client(
        "sts",
        endpoint_url=str(broker),
        region_name="us-east-1",
        aws_access_key_id="k",
        aws_secret_access_key="s",
    )
    identity = sts.get_caller_identity()
    assert identity["Account"] == ACCOUNT
    assert identity["Arn"] == f"arn:aws:iam::{ACCOUNT}:root"


# -- STS -------------------------------------------------------------------------------------

_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_R150_sts_says_whose_key_it_is(world: World) -> None:
    body = b"Action=GetCallerIdentity&Version=2011-06-15"
    status, _, data = world.sqs.raw("POST", "/", body, _FORM)
    assert status == 200
    assert f"<Account>{ACCOUNT}</Account>".encode() in data


def test_R150_a_message_that_names_an_action_of_sts_is_only_a_message(world: World) -> None:
    queue = world.sqs.create()
    url = world.sqs("GetQueueUrl", QueueName=queue.rpartition("/")[2])["QueueUrl"]
    form = f"Action=SendMessage&QueueUrl={url}&MessageBody=Action=GetCallerIdentity"
    status, _, data = world.sqs.raw("POST", "/", form.encode(), _FORM)
    assert (status, b"SendMessageResponse" in data) == (200, True)
    (message,) = world.sqs.receive(queue)
    assert message["Body"] == "Action=GetCallerIdentity"
