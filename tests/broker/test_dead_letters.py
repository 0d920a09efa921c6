"""Dead letters: redrive policies, who may use which queue, and message move tasks."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.testing.broker import running_broker
from tests.broker.support import Client, Refused, World, eventually

NOWHERE = "arn:aws:sqs:us-east-1:000000000000:nowhere"


def _policy(sqs: Client, target: str, count: Any = 2) -> str:
    return json.dumps({"deadLetterTargetArn": sqs.arn(target), "maxReceiveCount": count})


def _pair(sqs: Client, count: Any = 2, fifo: bool = False) -> tuple[str, str]:
    """A queue, and the queue of its dead letters."""
    dead = sqs.create(fifo=fifo)
    return sqs.create(fifo=fifo, RedrivePolicy=_policy(sqs, dead, count)), dead


def _fail(world: World, queue: str, times: int) -> None:
    for _ in range(times):
        assert world.sqs.receive(queue, VisibilityTimeout=1)
        world.clock.advance(1.1)


def test_R39_a_message_moves_on_the_receive_after_its_last(world: World) -> None:
    sqs = world.sqs
    queue, dead = _pair(sqs)
    told = sqs.send(queue, "a")
    _fail(world, queue, 2)
    assert sqs.counts(queue) == (1, 0, 0)  # not before somebody asks for it
    assert sqs.receive(queue) == []
    assert sqs.counts(queue) == (0, 0, 0)
    (message,) = sqs.receive(dead, AttributeNames=["All"])
    assert message["MessageId"] == told["MessageId"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "3"  # the count goes on
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == sqs.arn(queue)


def test_R39_a_spent_message_does_not_hold_up_those_behind_it(world: World) -> None:
    sqs = world.sqs
    queue, dead = _pair(sqs, 1)
    sqs.send(queue, "spent")
    _fail(world, queue, 1)
    sqs.send(queue, "fresh")
    assert sqs.bodies(queue) == ["fresh"]
    assert sqs.bodies(dead) == ["spent"]


@pytest.mark.parametrize("count", [3, "3"])
def test_R39_the_count_may_be_a_number_or_a_text(world: World, count: Any) -> None:
    queue, dead = _pair(world.sqs, count)
    world.sqs.send(queue, "a")
    _fail(world, queue, 3)
    assert world.sqs.receive(queue) == []
    assert world.sqs.bodies(dead) == ["a"]


def test_R39_a_deleted_message_does_not_die(world: World) -> None:
    sqs = world.sqs
    queue, dead = _pair(sqs, 1)
    sqs.send(queue, "a")
    sqs.delete(queue, sqs.receive(queue)[0])
    assert sqs.receive(queue) == []
    assert sqs.receive(dead) == []


def test_R39_a_poll_on_the_dead_letter_queue_is_woken(world: World) -> None:
    import threading

    sqs = world.sqs
    queue, dead = _pair(sqs, 1)
    sqs.send(queue, "a")
    _fail(world, queue, 1)
    found: list[list[str]] = []
    other = Client(world.url, sqs.protocol)
    thread = threading.Thread(target=lambda: found.append(other.bodies(dead, WaitTimeSeconds=20)))
    thread.start()
    world.until_parked(dead)
    assert sqs.receive(queue) == []
    thread.join()
    other.close()
    assert found == [["a"]]


def test_R39_an_empty_policy_ends_it(world: World) -> None:
    sqs = world.sqs
    queue, dead = _pair(sqs, 1)
    sqs("SetQueueAttributes", QueueUrl=queue, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in sqs.attributes(queue)
    sqs.send(queue, "a")
    _fail(world, queue, 3)
    assert sqs.bodies(queue) == ["a"]
    assert sqs("ListDeadLetterSourceQueues", QueueUrl=dead).get("queueUrls", []) == []


def test_R39_a_policy_is_told_as_it_was_given(sqs: Client) -> None:
    dead = sqs.create()
    policy = _policy(sqs, dead, 7)
    known = sqs.attributes(sqs.create(RedrivePolicy=policy))["RedrivePolicy"]
    assert json.loads(known) == json.loads(policy)


def test_R39_a_FIFO_queue_needs_a_FIFO_dead_letter_queue(sqs: Client) -> None:
    standard, fifo = sqs.create(), sqs.create(fifo=True)
    for queue, target in ((standard, fifo), (fifo, standard)):
        with pytest.raises(Refused, match="same type of queue"):
            sqs(
                "SetQueueAttributes",
                QueueUrl=queue,
                Attributes={"RedrivePolicy": _policy(sqs, target)},
            )


def test_R39_a_FIFO_message_dies_in_its_group_and_lets_the_rest_go_on(world: World) -> None:
    sqs = world.sqs
    queue, dead = _pair(sqs, 1, fifo=True)
    for body in "ab":
        sqs.send(queue, body, MessageGroupId="g", MessageDeduplicationId=body)
    assert sqs.bodies(queue, 1, VisibilityTimeout=1) == ["a"]
    world.clock.advance(1.1)
    assert sqs.bodies(queue) == ["b"]
    assert sqs.bodies(dead) == ["a"]


@pytest.mark.parametrize(
    ("permission", "allowed"), [("allowAll", True), ("denyAll", False), ("byQueue", True)]
)
def test_R39_a_dead_letter_queue_says_who_may_use_it(
    sqs: Client, permission: str, allowed: bool
) -> None:
    dead, queue, other = sqs.create(), sqs.create(), sqs.create()
    policy: dict[str, Any] = {"redrivePermission": permission}
    if permission == "byQueue":
        policy["sourceQueueArns"] = [sqs.arn(queue)]
    given = {"RedriveAllowPolicy": json.dumps(policy)}
    sqs("SetQueueAttributes", QueueUrl=dead, Attributes=given)
    use = {"RedrivePolicy": _policy(sqs, dead)}
    if allowed:
        sqs("SetQueueAttributes", QueueUrl=queue, Attributes=use)
    if permission != "allowAll":
        with pytest.raises(Refused, match="permission"):
            sqs("SetQueueAttributes", QueueUrl=other, Attributes=use)


def test_R55_the_sources_of_a_dead_letter_queue_are_listed_in_pages(sqs: Client) -> None:
    dead = sqs.create()
    sources = sorted(sqs.create(RedrivePolicy=_policy(sqs, dead)) for _ in range(3))
    assert sorted(sqs("ListDeadLetterSourceQueues", QueueUrl=dead)["queueUrls"]) == sources
    first = sqs("ListDeadLetterSourceQueues", QueueUrl=dead, MaxResults=2)
    rest = sqs(
        "ListDeadLetterSourceQueues", QueueUrl=dead, MaxResults=2, NextToken=first["NextToken"]
    )
    assert len(first["queueUrls"]) == 2
    assert sorted(first["queueUrls"] + rest["queueUrls"]) == sources
    assert "NextToken" not in rest


def test_R39_a_policy_whose_queue_was_deleted_and_made_again_works_again(world: World) -> None:
    sqs = world.sqs
    queue, dead = _pair(sqs, 1)
    sqs("DeleteQueue", QueueUrl=dead)
    sqs.send(queue, "a")
    _fail(world, queue, 3)  # nowhere to go
    sqs("CreateQueue", QueueName=dead.rpartition("/")[2])
    assert sqs.receive(queue) == []
    assert sqs.bodies(dead) == ["a"]


def test_R39_queues_not_made_through_SQS_bury_after_five_in_name_dlq(world: World) -> None:
    sqs = world.sqs
    name = f"native-{sqs.protocol}"
    world.url.loop.call_soon_threadsafe(world.url.broker.local.session, name)
    sqs("ListQueues")
    sqs.send(name, "a")
    _fail(world, name, 5)
    assert sqs.receive(name) == []
    (message,) = sqs.receive(f"{name}_dlq", AttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "6"
    policy = json.loads(sqs.attributes(name)["RedrivePolicy"])
    assert policy["maxReceiveCount"] == 5
    assert policy["deadLetterTargetArn"].endswith(f":{name}_dlq")


# -- move tasks --------------------------------------------------------------------------------


def _dead_letters(world: World, *bodies: str) -> tuple[str, str]:
    sqs = world.sqs
    queue, dead = _pair(sqs, 1)
    for body in bodies:
        sqs.send(queue, body)
    assert len(sqs.receive(queue, VisibilityTimeout=1)) == len(bodies)
    world.clock.advance(1.1)
    assert sqs.receive(queue) == []
    assert sqs.counts(dead) == (len(bodies), 0, 0)
    return queue, dead


def _finished(sqs: Client, arn: str) -> dict[str, Any]:
    while True:
        task: dict[str, Any] = sqs("ListMessageMoveTasks", SourceArn=arn)["Results"][0]
        if task["Status"] != "RUNNING":
            return task


def test_R55_a_move_without_destination_sends_each_message_to_its_own_source(world: World) -> None:
    sqs = world.sqs
    queue, dead = _dead_letters(world, "a", "b", "c")
    started = world.clock.now() // 1_000_000_000
    assert sqs("StartMessageMoveTask", SourceArn=sqs.arn(dead))["TaskHandle"]
    task = _finished(sqs, sqs.arn(dead))
    assert task["Status"] == "COMPLETED"
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert task["ApproximateNumberOfMessagesToMove"] == 3
    assert "TaskHandle" not in task  # told only while it runs
    assert int(task["StartedTimestamp"]) // 1000 == started
    assert sqs.bodies(queue) == ["a", "b", "c"]
    assert sqs.counts(dead) == (0, 0, 0)


def test_R55_a_move_fails_where_nobody_knows_the_source_of_a_message(world: World) -> None:
    sqs = world.sqs
    queue, dead = _dead_letters(world, "a")
    sqs.send(dead, "direct")
    arn = sqs.arn(dead)
    assert sqs("ListMessageMoveTasks", SourceArn=arn).get("Results", []) == []
    sqs("StartMessageMoveTask", SourceArn=arn)
    task = _finished(sqs, arn)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert task["ApproximateNumberOfMessagesMoved"] == 1
    assert (sqs.bodies(queue), sqs.bodies(dead, VisibilityTimeout=0)) == (["a"], ["direct"])


def test_R55_a_move_fails_where_the_source_of_a_message_was_deleted(world: World) -> None:
    sqs = world.sqs
    queue, dead = _dead_letters(world, "a")
    policy = {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1}
    sqs.create(RedrivePolicy=json.dumps(policy))
    sqs("DeleteQueue", QueueUrl=queue)
    sqs("StartMessageMoveTask", SourceArn=sqs.arn(dead))
    task = _finished(sqs, sqs.arn(dead))
    missing = "AWS.SimpleQueueService.NonExistentQueue"
    assert (task["Status"], task["FailureReason"]) == ("FAILED", missing)


def test_R55_a_moved_message_counts_its_receives_anew(world: World) -> None:
    sqs = world.sqs
    queue, dead = _dead_letters(world, "a")
    sqs("StartMessageMoveTask", SourceArn=sqs.arn(dead))
    _finished(sqs, sqs.arn(dead))
    (message,) = sqs.receive(queue, AttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert "DeadLetterQueueSourceArn" not in message["Attributes"]


def test_R39_sqs_s_api_may_take_a_mailbox_s_queue_its_dead_letters(world: World) -> None:
    sqs = world.sqs
    name = f"own-{sqs.protocol}"
    with open_mailbox(f"{world.url}/{name}", str) as box:
        box.send("tea")
    assert f'{name}_dlq","maxReceiveCount":5' in sqs.attributes(name)["RedrivePolicy"]
    sqs("SetQueueAttributes", QueueUrl=name, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in sqs.attributes(name)
    for number in range(1, 9):
        (message,) = sqs.receive(name, VisibilityTimeout=0, AttributeNames=["All"])
        assert message["Attributes"]["ApproximateReceiveCount"] == str(number)
    policy = _policy(sqs, sqs.create(), 9)
    sqs("SetQueueAttributes", QueueUrl=name, Attributes={"RedrivePolicy": policy})
    assert len(sqs.receive(name, VisibilityTimeout=0)) == 1
    assert sqs.counts(name) == (1, 0, 0)  # it moves on the receive after the last one
    assert sqs.receive(name) == []
    assert sqs.counts(name) == (0, 0, 0)


def test_R55_a_move_may_name_its_destination(world: World) -> None:
    sqs = world.sqs
    _, dead = _dead_letters(world, "a")
    elsewhere = sqs.create()
    sqs("StartMessageMoveTask", SourceArn=sqs.arn(dead), DestinationArn=sqs.arn(elsewhere))
    task = _finished(sqs, sqs.arn(dead))
    assert task["DestinationArn"] == sqs.arn(elsewhere)
    assert sqs.bodies(elsewhere) == ["a"]


def test_R55_a_move_keeps_to_its_rate_and_can_be_cancelled(world: World) -> None:
    sqs = world.sqs
    queue, dead = _dead_letters(world, *"abcde")
    arn = sqs.arn(dead)
    handle = sqs("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=2)[
        "TaskHandle"
    ]
    with pytest.raises(Refused, match="There is already a task running") as refused:
        sqs("StartMessageMoveTask", SourceArn=arn)
    assert (refused.value.status, refused.value.code) == (400, "InvalidParameterValue")
    while (task := sqs("ListMessageMoveTasks", SourceArn=arn)["Results"][0]) and (
        task["ApproximateNumberOfMessagesMoved"] < 2
    ):
        pass
    assert (task["Status"], task["TaskHandle"]) == ("RUNNING", handle)
    assert sqs("CancelMessageMoveTask", TaskHandle=handle) == {
        "ApproximateNumberOfMessagesMoved": 2
    }
    world.clock.advance(1.1)
    while (task := sqs("ListMessageMoveTasks", SourceArn=arn)["Results"][0])[
        "Status"
    ] != "CANCELLED":
        pass
    assert sqs.counts(queue)[0] == 2
    assert sqs.counts(dead)[0] == 3
    with pytest.raises(Refused) as refused:
        sqs("CancelMessageMoveTask", TaskHandle=handle)
    assert (refused.value.status, refused.value.code) == (404, "ResourceNotFoundException")


def test_R55_no_second_sees_more_messages_moved_than_the_rate(world: World) -> None:
    """Also not one that begins with the first of them and ends with the next."""
    sqs = world.sqs
    queue, dead = _dead_letters(world, *"ab")
    arn = sqs.arn(dead)
    sqs("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=1)

    def moved() -> int:
        (task,) = sqs("ListMessageMoveTasks", SourceArn=arn)["Results"]
        return int(task["ApproximateNumberOfMessagesMoved"])

    eventually(lambda: moved() == 1)  # it pauses once it has counted what it moved
    assert sqs.counts(queue)[0] == 1
    world.clock.advance(1.0)
    for _ in range(10):
        assert sqs.counts(queue)[0] == 1
    world.clock.advance(0.1)
    eventually(lambda: sqs.counts(queue)[0] == 2)


def test_R55_a_move_fails_if_its_destination_is_deleted(world: World) -> None:
    sqs = world.sqs
    _, dead = _dead_letters(world, *"abc")
    elsewhere = sqs.create()
    ask = {"SourceArn": sqs.arn(dead), "DestinationArn": sqs.arn(elsewhere)}
    sqs("StartMessageMoveTask", MaxNumberOfMessagesPerSecond=1, **ask)
    while sqs.counts(elsewhere)[0] == 0:
        pass
    sqs("DeleteQueue", QueueUrl=elsewhere)
    world.clock.advance(1.1)
    task = _finished(sqs, sqs.arn(dead))
    assert task["Status"] == "FAILED"
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert sqs.counts(dead)[0] == 2


def test_R55_a_task_to_cancel_belongs_to_a_queue_that_exists(sqs: Client) -> None:
    for source, says in ((NOWHERE, "SourceArn parameter"), (sqs.arn(sqs.create()), "Task does")):
        known = json.dumps({"taskId": "x", "sourceArn": source}).encode()
        with pytest.raises(Refused, match=says) as refused:
            sqs("CancelMessageMoveTask", TaskHandle=base64.b64encode(known).decode())
        assert (refused.value.status, refused.value.code) == (404, "ResourceNotFoundException")


def test_R55_only_the_latest_task_is_listed_unless_more_are_asked_for(world: World) -> None:
    sqs = world.sqs
    _, dead = _dead_letters(world, "a")
    arn = sqs.arn(dead)
    nothing = {"Results": []} if sqs.protocol == "json" else {}  # XML has no empty list
    assert sqs("ListMessageMoveTasks", SourceArn=sqs.arn(sqs.create())) == nothing
    for _ in range(3):
        sqs("StartMessageMoveTask", SourceArn=arn)
        _finished(sqs, arn)
    assert len(sqs("ListMessageMoveTasks", SourceArn=arn)["Results"]) == 1
    tasks = sqs("ListMessageMoveTasks", SourceArn=arn, MaxResults=10)["Results"]
    assert [task["ApproximateNumberOfMessagesMoved"] for task in tasks] == [0, 0, 1]


def test_R55_what_a_move_can_not_do(world: World) -> None:
    sqs = world.sqs
    _, dead = _dead_letters(world, "a")
    plain, fifo = sqs.create(), sqs.create(fifo=True)
    rules: list[tuple[dict[str, Any], int, str, str]] = [
        ({"SourceArn": NOWHERE}, 404, "ResourceNotFoundException", "SourceArn"),
        ({"SourceArn": sqs.arn(plain)}, 400, "InvalidParameterValue", "Dead Letter Queue"),
        ({"DestinationArn": NOWHERE}, 404, "ResourceNotFoundException", "DestinationArn"),
        ({"DestinationArn": sqs.arn(dead)}, 400, "InvalidParameterValue", "cannot be the same"),
        ({"DestinationArn": sqs.arn(fifo)}, 400, "InvalidParameterValue", "same queue type"),
        ({"MaxNumberOfMessagesPerSecond": 0}, 400, "InvalidParameterValue", "between 1 and 500"),
        ({"MaxNumberOfMessagesPerSecond": 501}, 400, "InvalidParameterValue", "between 1 and 500"),
    ]
    for parameters, status, code, says in rules:
        with pytest.raises(Refused) as refused:
            sqs("StartMessageMoveTask", **{"SourceArn": sqs.arn(dead), **parameters})
        assert (refused.value.status, refused.value.code) == (status, code)
        assert says in refused.value.message
    with pytest.raises(Refused, match="MaxResults"):
        sqs("ListMessageMoveTasks", SourceArn=sqs.arn(dead), MaxResults=11)


def test_R55_a_move_goes_on_after_a_restart(store: str) -> None:
    with running_broker(store) as url:
        sqs = Client(url)
        queue, dead = _pair(sqs, 1)
        for body in "abc":
            sqs.send(queue, body)
        for message in sqs.receive(queue):
            change = {"QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"]}
            sqs("ChangeMessageVisibility", VisibilityTimeout=0, **change)
        assert sqs.receive(queue) == []
        arn = sqs.arn(dead)
        sqs("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=1)
        sqs.close()
    with running_broker(store) as url:
        sqs = Client(url)
        arn = sqs.arn(dead.rpartition("/")[2])
        assert _finished(sqs, arn)["Status"] == "COMPLETED"
        assert sqs.bodies(queue.rpartition("/")[2]) == ["a", "b", "c"]
        sqs.close()
