"""Queues: create, look up, list, attributes, tags, permissions, purge, delete."""

from __future__ import annotations

import json

import pytest

from pillarbox.testing import FakeClock
from pillarbox.testing.broker import running_broker
from tests.broker.support import ACCOUNT, Client, Refused, World


def test_R55_a_queues_URL_has_the_host_the_client_used(sqs: Client) -> None:
    name = sqs.create().rpartition("/")[2]
    assert sqs("GetQueueUrl", QueueName=name) == {"QueueUrl": f"{sqs.url}/{ACCOUNT}/{name}"}


def test_R55_a_queue_is_found_by_name_whatever_the_host_of_its_URL(sqs: Client) -> None:
    name = sqs.create().rpartition("/")[2]
    sqs.send(f"https://sqs.eu-west-1.amazonaws.com/{ACCOUNT}/{name}", "a")
    sqs.send(name, "b")
    sqs.send(f"/{name}", "c")
    assert sqs.bodies(name) == ["a", "b", "c"]


def test_R55_a_queue_of_another_account_is_not_there(sqs: Client) -> None:
    name = sqs.create().rpartition("/")[2]
    for ask in (
        {"action": "SendMessage", "QueueUrl": f"{sqs.url}/123456789012/{name}"},
        {"action": "GetQueueUrl", "QueueName": name, "QueueOwnerAWSAccountId": "123456789012"},
    ):
        with pytest.raises(Refused, match="NonExistentQueue"):
            sqs(ask.pop("action"), **ask)
    owner = sqs("GetQueueUrl", QueueName=name, QueueOwnerAWSAccountId=ACCOUNT)
    assert owner["QueueUrl"].endswith(name)


def test_R55_an_action_may_be_posted_to_the_queues_own_path(sqs: Client) -> None:
    queue = sqs.create()
    path = queue.removeprefix(sqs.url)
    sqs("SendMessage", path, MessageBody="a")
    assert sqs("ReceiveMessage", path)["Messages"][0]["Body"] == "a"


def test_R55_creating_again_with_the_same_attributes_returns_the_URL(sqs: Client) -> None:
    queue = sqs.create(VisibilityTimeout=9, DelaySeconds=3)
    name = queue.rpartition("/")[2]
    for given in ({}, {"VisibilityTimeout": "9"}, {"DelaySeconds": "3", "VisibilityTimeout": "9"}):
        assert sqs("CreateQueue", QueueName=name, Attributes=given)["QueueUrl"] == queue


def test_R55_an_attribute_that_was_left_to_its_default_is_compared_with_it(sqs: Client) -> None:
    name = sqs.create().rpartition("/")[2]
    sqs("CreateQueue", QueueName=name, Attributes={"VisibilityTimeout": "30"})


def test_R55_creating_again_with_another_attribute_is_refused(sqs: Client) -> None:
    name = sqs.create(VisibilityTimeout=9).rpartition("/")[2]
    with pytest.raises(Refused) as refused:
        sqs("CreateQueue", QueueName=name, Attributes={"VisibilityTimeout": "10"})
    assert refused.value.code == "QueueAlreadyExists"
    assert "VisibilityTimeout" in refused.value.message


def test_R55_the_defaults_are_those_of_AWS(sqs: Client) -> None:
    known = sqs.attributes(sqs.create())
    assert {
        "VisibilityTimeout": "30",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
    }.items() <= known.items()
    assert "RedrivePolicy" not in known
    assert "FifoQueue" not in known


def test_R55_a_FIFO_queue_has_its_own_defaults(sqs: Client) -> None:
    known = sqs.attributes(sqs.create(fifo=True))
    assert {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }.items() <= known.items()


def test_R55_an_ARN_has_region_account_and_name(sqs: Client) -> None:
    queue = sqs.create()
    assert sqs.arn(queue) == f"arn:aws:sqs:us-east-1:{ACCOUNT}:{queue.rpartition('/')[2]}"


def test_R55_only_the_attributes_asked_for_are_told(sqs: Client) -> None:
    queue = sqs.create()
    assert set(sqs.attributes(queue, "DelaySeconds", "QueueArn")) == {"DelaySeconds", "QueueArn"}
    assert sqs("GetQueueAttributes", QueueUrl=queue) == {}
    assert sqs.attributes(queue, "RedrivePolicy") == {}


def test_R55_times_of_creation_and_of_the_last_change_are_told(world: World) -> None:
    sqs, clock = world.sqs, world.clock
    queue = sqs.create()
    made = str(clock.now() // 1_000_000_000)
    clock.advance(100)
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"DelaySeconds": "1"})
    known = sqs.attributes(queue)
    assert known["CreatedTimestamp"] == made
    assert known["LastModifiedTimestamp"] == str(int(made) + 100)


POLICY = '{"Version":"2012-10-17","Statement":[{"Sid":"a"}]}'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "0"),
        ("VisibilityTimeout", "43200"),
        ("MessageRetentionPeriod", "60"),
        ("MessageRetentionPeriod", "1209600"),
        ("MaximumMessageSize", "1024"),
        ("DelaySeconds", "900"),
        ("ReceiveMessageWaitTimeSeconds", "20"),
        ("KmsMasterKeyId", "alias/aws/sqs"),
        ("SqsManagedSseEnabled", "false"),
        ("Policy", '{"Version":"2012-10-17","Statement":{"Sid":"a","Effect":"Allow"}}'),
        ("Policy", '{"Id":"i","Version":"2008-10-17","Statement":[{"Action":["sqs:*"]}]}'),
        ("RedriveAllowPolicy", '{"redrivePermission":"denyAll"}'),
    ],
)
def test_R55_an_attribute_can_be_set_and_read(sqs: Client, name: str, value: str) -> None:
    queue = sqs.create()
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={name: value})
    assert sqs.attributes(queue)[name] == value


def test_R55_numbers_are_shown_without_leading_zeros(sqs: Client) -> None:
    queue = sqs.create(VisibilityTimeout="0" * 5_000 + "9")
    assert sqs.attributes(queue)["VisibilityTimeout"] == "9"
    again = {"QueueName": queue.rpartition("/")[2], "Attributes": {"VisibilityTimeout": "09"}}
    assert sqs("CreateQueue", **again) == {"QueueUrl": queue}


def test_R55_setting_one_attribute_keeps_the_others(sqs: Client) -> None:
    queue = sqs.create(VisibilityTimeout=9)
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"DelaySeconds": "1"})
    known = sqs.attributes(queue, "VisibilityTimeout", "DelaySeconds")
    assert known == {"VisibilityTimeout": "9", "DelaySeconds": "1"}


@pytest.mark.parametrize("name", ["Policy", "RedriveAllowPolicy"])
def test_R55_an_empty_policy_deletes_it(sqs: Client, name: str) -> None:
    value = '{"redrivePermission":"denyAll"}' if name != "Policy" else POLICY
    queue = sqs.create(**{name: value})
    assert name in sqs.attributes(queue)
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={name: ""})
    assert name not in sqs.attributes(queue)


def test_R55_counts_tell_visible_delayed_and_in_flight_apart(sqs: Client) -> None:
    queue = sqs.create()
    for body in "abc":
        sqs.send(queue, body)
    sqs.send(queue, "later", DelaySeconds=100)
    sqs.receive(queue, 1)
    assert sqs.counts(queue) == (2, 1, 1)


def test_R55_queues_are_listed_by_prefix_in_pages() -> None:
    with running_broker() as url:
        for protocol in ("json", "query"):
            sqs = Client(url, protocol)
            assert sqs("ListQueues", QueueNamePrefix="none") == {}
            for number in range(7):
                sqs("CreateQueue", QueueName=f"page{number}")
            sqs("CreateQueue", QueueName="other")
            seen: list[str] = []
            token: dict[str, str] = {}
            sizes = []
            while True:
                answer = sqs("ListQueues", QueueNamePrefix="page", MaxResults=3, **token)
                seen += answer["QueueUrls"]
                sizes.append(len(answer["QueueUrls"]))
                if "NextToken" not in answer:
                    break
                token = {"NextToken": answer["NextToken"]}
            assert sizes == [3, 3, 1]
            assert [each.rpartition("/")[2] for each in seen] == [f"page{n}" for n in range(7)]
            assert len(sqs("ListQueues")["QueueUrls"]) == 8
            sqs.close()


def test_R55_a_deleted_queue_is_gone_with_its_messages(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a")
    sqs("DeleteQueue", QueueUrl=queue)
    with pytest.raises(Refused, match="NonExistentQueue"):
        sqs.receive(queue)
    sqs("CreateQueue", QueueName=queue.rpartition("/")[2])
    assert sqs.bodies(queue) == []


def test_R55_deleting_a_queue_answers_whoever_waits_on_it(world: World) -> None:
    import threading

    sqs, queue = world.sqs, world.sqs.create()
    errors: list[str] = []
    other = Client(world.url, sqs.protocol)

    def wait() -> None:
        try:
            other.receive(queue, WaitTimeSeconds=20)
        except Refused as refused:
            errors.append(refused.code)

    thread = threading.Thread(target=wait)
    thread.start()
    world.until_parked(queue)
    sqs("DeleteQueue", QueueUrl=queue)
    thread.join()
    other.close()
    assert errors == ["AWS.SimpleQueueService.NonExistentQueue"]


def test_R55_a_name_that_was_just_deleted_has_to_wait_a_minute() -> None:
    clock = FakeClock()
    with running_broker(clock=clock, recreate_after_seconds=60) as url:
        sqs = Client(url)
        queue = sqs.create()
        sqs("DeleteQueue", QueueUrl=queue)
        name = queue.rpartition("/")[2]
        with pytest.raises(Refused) as refused:
            sqs("CreateQueue", QueueName=name)
        assert refused.value.code == "AWS.SimpleQueueService.QueueDeletedRecently"
        assert "wait 60 seconds" in refused.value.message
        clock.advance(60)
        sqs("CreateQueue", QueueName=name)
        sqs.close()


def test_R55_a_purge_removes_everything(sqs: Client) -> None:
    queue = sqs.create()
    for body in "ab":
        sqs.send(queue, body)
    sqs.send(queue, "later", DelaySeconds=100)
    sqs.receive(queue, 1)
    sqs("PurgeQueue", QueueUrl=queue)
    assert sqs.counts(queue) == (0, 0, 0)


def test_R55_a_purge_is_allowed_once_a_minute() -> None:
    clock = FakeClock()
    with running_broker(clock=clock, purge_interval_seconds=60) as url:
        sqs = Client(url)
        queue = sqs.create()
        sqs("PurgeQueue", QueueUrl=queue)
        with pytest.raises(Refused) as refused:
            sqs("PurgeQueue", QueueUrl=queue)
        assert refused.value.status == 403
        assert refused.value.code == "AWS.SimpleQueueService.PurgeQueueInProgress"
        assert "allowed every 60 seconds" in refused.value.message
        clock.advance(60)
        sqs("PurgeQueue", QueueUrl=queue)
        sqs.close()


def test_R55_tags_are_set_read_and_removed(sqs: Client) -> None:
    queue = sqs.create()
    assert sqs("ListQueueTags", QueueUrl=queue) == {}
    sqs("TagQueue", QueueUrl=queue, Tags={"team": "post", "tier": "1", "empty": ""})
    sqs("TagQueue", QueueUrl=queue, Tags={"tier": "2"})
    sqs("UntagQueue", QueueUrl=queue, TagKeys=["team", "unknown"])
    assert sqs("ListQueueTags", QueueUrl=queue) == {"Tags": {"tier": "2", "empty": ""}}


def test_R55_a_queue_can_be_made_with_tags(sqs: Client) -> None:
    name = f"tagged-{sqs.protocol}"
    queue = sqs("CreateQueue", QueueName=name, tags={"team": "post"})["QueueUrl"]
    assert sqs("ListQueueTags", QueueUrl=queue) == {"Tags": {"team": "post"}}


def test_R55_tags_beyond_fifty_are_refused_even_one_by_one(sqs: Client) -> None:
    queue = sqs.create()
    sqs("TagQueue", QueueUrl=queue, Tags={f"k{i}": "v" for i in range(50)})
    sqs("TagQueue", QueueUrl=queue, Tags={"k0": "other"})
    with pytest.raises(Refused, match="Too many tags added for queue"):
        sqs("TagQueue", QueueUrl=queue, Tags={"more": "v"})


def test_R55_permissions_are_statements_of_the_policy(sqs: Client) -> None:
    queue = sqs.create()
    ask = {"AWSAccountIds": ["123456789012"], "Actions": ["SendMessage", "ReceiveMessage"]}
    sqs("AddPermission", QueueUrl=queue, Label="friends", **ask)
    sqs("AddPermission", QueueUrl=queue, Label="all", AWSAccountIds=["123456789012"], Actions=["*"])
    policy = json.loads(sqs.attributes(queue)["Policy"])
    assert [each["Sid"] for each in policy["Statement"]] == ["friends", "all"]
    assert policy["Statement"][0]["Action"] == ["SQS:SendMessage", "SQS:ReceiveMessage"]
    assert policy["Statement"][0]["Principal"] == {"AWS": "arn:aws:iam::123456789012:root"}
    assert policy["Statement"][0]["Resource"] == sqs.arn(queue)
    assert policy["Version"] == "2008-10-17"
    assert policy["Id"] == f"{sqs.arn(queue)}/SQSDefaultPolicy"
    sqs("AddPermission", QueueUrl=queue, Label="friends", **ask)  # once more is no change
    assert json.loads(sqs.attributes(queue)["Policy"]) == policy
    with pytest.raises(Refused, match="Already exists"):
        sqs("AddPermission", QueueUrl=queue, Label="friends", **{**ask, "Actions": ["*"]})
    with pytest.raises(Refused, match="can't find label on existing policy"):
        sqs("RemovePermission", QueueUrl=queue, Label="none")
    sqs("RemovePermission", QueueUrl=queue, Label="friends")
    sqs("RemovePermission", QueueUrl=queue, Label="all")
    assert "Policy" not in sqs.attributes(queue)


def test_R55_a_policy_has_at_most_twenty_permissions(sqs: Client) -> None:
    queue = sqs.create()
    ask = {"QueueUrl": queue, "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
    for number in range(20):
        sqs("AddPermission", Label=f"l{number}", **ask)
    with pytest.raises(Refused, match="21 Statements were found, maximum allowed is 20") as refused:
        sqs("AddPermission", Label="more", **ask)
    assert (refused.value.status, refused.value.code) == (403, "OverLimit")


def test_R55_a_permission_that_makes_the_policy_too_long_is_refused(sqs: Client) -> None:
    queue = sqs.create()
    accounts = [f"{number:012}" for number in range(300)]
    with pytest.raises(Refused, match="more than 8,192 bytes") as refused:
        sqs("AddPermission", QueueUrl=queue, Label="l", AWSAccountIds=accounts, Actions=["*"])
    assert refused.value.code == "OverLimit"
    assert "Policy" not in sqs.attributes(queue)


def test_R55_a_key_of_KMS_takes_the_place_of_SQS_s_own_encryption(sqs: Client) -> None:
    queue = sqs.create(SqsManagedSseEnabled="true")
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"KmsMasterKeyId": "key"})
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    assert sqs.attributes(queue, *names) == dict(zip(names, ("key", "300", "false"), strict=True))
    with pytest.raises(Refused, match="You can use one type of server-side encryption"):
        sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"SqsManagedSseEnabled": "true"})
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"KmsMasterKeyId": ""})
    assert sqs.attributes(queue, *names) == {"SqsManagedSseEnabled": "false"}
    created = sqs.create(KmsMasterKeyId="key")
    sqs("SetQueueAttributes", QueueUrl=created, Attributes={"KmsMasterKeyId": ""})
    assert sqs.attributes(created, *names) == {"SqsManagedSseEnabled": "false"}


def test_R55_blanks_around_the_name_of_an_attribute_are_left_out(sqs: Client) -> None:
    queue = sqs.create(**{"VisibilityTimeout ": 2})
    assert sqs.attributes(queue, "VisibilityTimeout") == {"VisibilityTimeout": "2"}
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={" DelaySeconds": "3"})
    assert sqs.attributes(queue, "DelaySeconds") == {"DelaySeconds": "3"}
    with pytest.raises(Refused, match="Unknown Attribute Visibility Timeout"):
        sqs.create(**{"Visibility Timeout": 2})
