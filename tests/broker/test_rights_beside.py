"""R115: rights beside the tables: lists, the history, tasks, tokens, pages, and signatures."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.broker import Key
from pillarbox.broker.rights import Rights
from pillarbox.mailbox.broker import wire
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import running_broker
from tests.broker.native.support import until
from tests.broker.rights_world import (
    ALL,
    DENIED,
    KEYS,
    LIMITED,
    READER,
    World,
    arn,
    exchange,
    policy_to,
    signed,
    world,
)


@pytest.fixture
def w() -> Iterator[World]:
    with world() as made:
        yield made


def _names(urls: list[str]) -> set[str]:
    return {url.rpartition("/")[2] for url in urls}


# -- what a list shows ---------------------------------------------------------------------------


def test_R115_a_list_shows_the_queues_that_the_key_may_list(w: World) -> None:
    everything = set(w.store.sessions)
    own = {name for name in everything if name.startswith("a-")}
    assert own < everything
    for key, expected in ((ALL, everything), (READER, everything), (LIMITED, own), ("BARE", None)):
        listed = w.sqs(key, "ListQueues").get("QueueUrls", [])
        assert _names(listed) == (expected or set())
        listed = w.native(key, "", wire.ListQueues()).value
        assert {line.name for line in listed} == (expected or set())
    assert "QueueUrls" not in w.sqs(LIMITED, "ListQueues", QueueNamePrefix="b-")
    page = w.sqs(LIMITED, "ListQueues", MaxResults=1)
    rest = w.sqs(LIMITED, "ListQueues", MaxResults=1000, NextToken=page["NextToken"])
    assert _names(page["QueueUrls"] + rest["QueueUrls"]) == own


def test_R115_foreign_sources_of_a_dead_letter_queue_are_not_listed(w: World) -> None:
    for key, expected in ((ALL, {"a-shares", "b-shares"}), (LIMITED, {"a-shares"})):
        found = w.sqs(key, "ListDeadLetterSourceQueues", QueueUrl="a-shared")["queueUrls"]
        assert _names(found) == expected


def test_R115_a_redrive_allow_policy_tells_and_changes_nothing(w: World) -> None:
    before = w.state()
    before.pop("a-orders")
    for name in ("b-orders", "b-missing"):
        value = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn(name)]})
        attributes = {"RedriveAllowPolicy": value}
        answer = w.sqs(LIMITED, "SetQueueAttributes", QueueUrl="a-orders", Attributes=attributes)
        assert answer == {}
    after = w.state()
    after.pop("a-orders")
    assert after == before


# -- dead-letter queues --------------------------------------------------------------------------


def test_R115_a_refused_target_may_still_have_a_policy_of_its_own(w: World) -> None:
    policy = {"RedrivePolicy": policy_to("b-orders")}
    refused = w.sqs(LIMITED, "SetQueueAttributes", QueueUrl="a-orders", Attributes=policy)
    assert refused["Code"] == DENIED
    own = {"RedrivePolicy": policy_to("b-dlq")}
    assert w.sqs(ALL, "SetQueueAttributes", QueueUrl="b-orders", Attributes=own) == {}


def test_R115_the_dead_letter_queue_that_comes_with_a_new_queue_needs_a_right_too(w: World) -> None:
    refused = w.native("EXACT", "a-new", wire.Declare())
    assert (refused.code, "a-new_dlq" in refused.message) == ("AccessDeniedError", True)
    assert "a-new" not in w.store.sessions
    assert isinstance(w.native("EXACT", "a-new", wire.Declare(immortal=True)), wire.Declared)
    assert "a-new_dlq" not in w.store.sessions


def test_R115_other_attributes_change_without_a_right_to_the_target_set_before(w: World) -> None:
    policy = {"RedrivePolicy": policy_to("b-dlq")}
    w.sqs(ALL, "SetQueueAttributes", QueueUrl="a-orders", Attributes=policy)
    changes = {"DelaySeconds": "3"}
    assert w.sqs(LIMITED, "SetQueueAttributes", QueueUrl="a-orders", Attributes=changes) == {}


# -- moving messages -----------------------------------------------------------------------------


def test_R115_a_redrive_of_everything_needs_a_right_to_every_source(w: World) -> None:
    before = w.state()
    refused = w.native(LIMITED, "a-shared", wire.Redrive())
    assert (refused.code, "b-shares" in refused.message) == ("AccessDeniedError", True)
    assert w.state() == before
    assert w.native(LIMITED, "a-dlq", wire.Redrive()).value == 2


def test_R115_a_move_task_has_the_rights_of_its_key_to_the_end(w: World) -> None:
    """A dead letter of another owner that comes up later ends the task, and stays."""
    w.native(ALL, "a-shared", wire.Purge())
    for source, count in (("a-shares", 2), ("b-shares", 1)):
        for number in range(count):
            w.sqs(ALL, "SendMessage", QueueUrl=source, MessageBody=str(number))
        for _ in range(2):
            w.sqs(ALL, "ReceiveMessage", QueueUrl=source, MaxNumberOfMessages=10)
    started = w.sqs(
        LIMITED, "StartMessageMoveTask", SourceArn=arn("a-shared"), MaxNumberOfMessagesPerSecond=1
    )
    assert "TaskHandle" in started

    def task() -> Any:
        return w.sqs(ALL, "ListMessageMoveTasks", SourceArn=arn("a-shared"))["Results"][0]

    clock = w.store.clock
    assert isinstance(clock, FakeClock)

    def over() -> bool:
        clock.advance(1.1)  # again: the task may only now begin its pause of a second
        return bool(task()["Status"] != "RUNNING")

    until(over, "the task is over")
    assert (task()["Status"], task()["FailureReason"]) == ("FAILED", DENIED)
    assert task()["ApproximateNumberOfMessagesMoved"] == 2
    assert w.store.sessions["b-shares"].counts()[0] == 0
    assert w.store.sessions["a-shared"].counts()[0] == 1


def test_R115_a_move_task_ends_with_its_key(tmp_path: Path) -> None:
    """A broker that starts again without the key does not go on with what the key began."""
    data, clock = str(tmp_path / "data"), FakeClock()
    with running_broker(data, keys=KEYS, clock=clock) as url:
        w = World(url)
        w.sqs(
            LIMITED, "StartMessageMoveTask", SourceArn=arn("a-dlq"), MaxNumberOfMessagesPerSecond=1
        )
        until(lambda: w.store.sessions["a-source"].counts()[0] == 1, "the first has moved")
    with running_broker(data, keys=(Key(ALL, "s"),), clock=clock) as url:
        (task,) = url.broker.local.get("a-dlq").move_tasks
        until(lambda: task.status == "FAILED", "the task is over")
        assert task.failure == DENIED
        assert url.broker.store.sessions["a-dlq"].counts()[0] == 1


# -- the history, and pages ----------------------------------------------------------------------


def test_R115_the_history_of_a_queue_needs_the_right_to_receive(tmp_path: Path) -> None:
    with running_broker(str(tmp_path / "data"), keys=KEYS, clock=FakeClock()) as url:
        w = World(url)
        for command in (wire.Outline(), wire.Recall(0, 9)):
            for key, queue, allowed in (
                (ALL, "", True),
                (ALL, "b-orders", True),
                (LIMITED, "", False),
                (LIMITED, "a-orders", True),
                (LIMITED, "b-orders", False),
                (LIMITED, "b-missing", False),
                (READER, "", False),
                (READER, "a-orders", False),
            ):
                outcome = w.native(key, queue, command)
                refused = isinstance(outcome, wire.Failed)
                assert refused is not allowed, (command, key, queue)
                assert not refused or outcome.code == "AccessDeniedError"


def test_R115_a_backup_needs_a_key_with_every_right(tmp_path: Path) -> None:
    with running_broker(str(tmp_path / "data"), keys=KEYS, clock=FakeClock()) as url:
        w = World(url)
        for command in (wire.ListFiles(), wire.ReadFile("snapshot", 0, 12)):
            for key, allowed in ((ALL, True), (LIMITED, False), (READER, False)):
                for queue in ("", "a-orders"):
                    outcome = w.native(key, queue, command)
                    refused = isinstance(outcome, wire.Failed)
                    assert refused is not allowed, (command, key, queue)
                    assert not refused or outcome.code == "AccessDeniedError"


def test_R115_pages_take_a_key_with_every_right_and_messages_the_right_to_receive(w: World) -> None:
    from pillarbox.dashboard.dashboard import mount

    mount(w.url.broker)
    served = set(w.url.broker.routes._by_segment)
    assert served == {"livez", "readyz", "metrics", "pillarbox", "dashboard"}, "a row for each"

    def status(key: str, path: str) -> int:
        basic = {"Authorization": "Basic " + b64encode(f"{key}:s".encode()).decode()}
        return w.http("GET", path, b"", basic)[0]

    for path in ("/metrics", "/dashboard", "/dashboard/queues/a-orders", "/"):
        assert [status(key, path) for key in (ALL, LIMITED, READER)] == [200, 403, 403], path
    for queue, expected in (
        ("a-orders", [200, 200, 403]),
        ("b-orders", [200, 403, 403]),
        ("b-missing", [400, 403, 403]),
    ):
        path = f"/pillarbox/v1/{queue}/messages"
        assert [status(key, path) for key in (ALL, LIMITED, READER)] == expected, queue


# -- signatures ----------------------------------------------------------------------------------


def test_R115_a_signature_for_another_service_is_refused(w: World) -> None:
    headers = signed(f"{w.url}/", ALL, b"{}", {"X-Amz-Target": "AmazonSQS.ListQueues"},
                     "us-east-1", "s3")  # fmt: skip
    status, fields, data = w.http("POST", "/", b"{}", headers)
    assert (status, fields["x-amzn-query-error"]) == (403, "SignatureDoesNotMatch;Sender")
    text = "Credential should be scoped to correct service: 'sqs'."
    assert json.loads(data)["message"] == text
    assert w.http("GET", "/metrics", b"", headers)[0] == 403


def test_R115_the_queues_of_mailboxes_are_in_the_region_that_is_configured() -> None:
    with running_broker(keys=(Key(ALL, "s"),), region="eu-west-1") as url:
        mailbox = str(url).replace("://", f"://{ALL}:s@") + "/orders"
        with open_mailbox(mailbox, str) as box:  # whose URL names no region
            box.send("a")
        body, headers = b"{}", {"X-Amz-Target": "AmazonSQS.ListQueues"}
        for region, expected in (("eu-west-1", True), ("us-east-1", False)):
            fields = signed(f"{url}/", ALL, body, headers, region)
            status, _, data = exchange(url, "POST", "/", body, fields)
            assert (status, b"/orders" in data) == (200, expected)


def test_R115_control_without_the_table_a_limited_key_does_as_it_likes(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rights, "check_sqs", lambda *_: None)
    assert "Code" not in w.sqs(LIMITED, "SendMessage", QueueUrl="b-orders", MessageBody="x")


# -- names as they are not usually written -------------------------------------------------------


@pytest.mark.parametrize("name", ["RedrivePolicy", " RedrivePolicy", "RedrivePolicy\t"])
def test_R115_blanks_around_an_attribute_hide_it_from_nobody(w: World, name: str) -> None:
    change = {name: policy_to("b-dlq")}
    assert (
        w.sqs(LIMITED, "SetQueueAttributes", QueueUrl="a-orders", Attributes=change)["Code"]
        == DENIED
    )
    assert w.sqs(LIMITED, "CreateQueue", QueueName="a-new", Attributes=change)["Code"] == DENIED
    change = {name: policy_to("a-dlq")}
    assert "Code" not in w.sqs(
        LIMITED, "SetQueueAttributes", QueueUrl="a-orders", Attributes=change
    )


def test_R115_a_limited_key_reaches_no_queue_of_another_account(w: World) -> None:
    other = "eu-west-1:222222222222:a-orders"
    w.store.session("a-orders", namespace="eu-west-1:222222222222:").send([b"a secret"])
    assert w.sqs(ALL, "ReceiveMessage", QueueUrl="a-orders").get("Code") is None
    for action in ("ReceiveMessage", "GetQueueAttributes", "PurgeQueue"):
        assert w.sqs(LIMITED, action, QueueUrl=other)["Code"] == DENIED
    assert w.sqs(LIMITED, "GetQueueUrl", QueueName=other)["Code"] == DENIED
    for command in (wire.Peek("ready", 1), wire.Receive(1, 30 * 10**9, 0)):
        assert w.native(LIMITED, other, command).code == "AccessDeniedError"
    assert w.native(LIMITED, "a-dlq", wire.Redrive(to=other)).code == "AccessDeniedError"
