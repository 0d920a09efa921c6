"""The batch forms: the whole request fails for what is wrong with it, else entry by entry."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.support import Client, Refused, World, text

PREFIX = "AWS.SimpleQueueService."
BATCHES = ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"]


def _entries(action: str, *ids: str | None) -> list[dict[str, Any]]:
    rest: dict[str, Any] = {"ReceiptHandle": "x"}
    if action == "SendMessageBatch":
        rest = {"MessageBody": "a"}
    elif action == "ChangeMessageVisibilityBatch":
        rest["VisibilityTimeout"] = 1
    return [{"Id": name, **rest} if name is not None else rest for name in ids]


@pytest.mark.parametrize("action", BATCHES)
@pytest.mark.parametrize(
    ("ids", "code", "says"),
    [
        ([], PREFIX + "EmptyBatchRequest", "at least one"),
        ([str(i) for i in range(11)], PREFIX + "TooManyEntriesInBatchRequest", "You have sent 11."),
        (["a", "b", "a"], PREFIX + "BatchEntryIdsNotDistinct", "Id a repeated."),
        (["a b"], PREFIX + "InvalidBatchEntryId", "A batch entry id can only contain"),
        (["x" * 81], PREFIX + "InvalidBatchEntryId", "at most 80 letters"),
        (["é"], PREFIX + "InvalidBatchEntryId", "A batch entry id can only contain"),
        (["a", None], "MissingParameter", "Entry.2.Id"),
    ],
)
def test_R55_an_ill_formed_batch_fails_whole(
    sqs: Client, action: str, ids: list[str | None], code: str, says: str
) -> None:
    queue = sqs.create()
    with pytest.raises(Refused) as refused:
        sqs(action, QueueUrl=queue, Entries=_entries(action, *ids))
    assert (refused.value.status, refused.value.code) == (400, code)
    assert says in refused.value.message
    assert sqs.counts(queue) == (0, 0, 0)


def test_R55_the_good_entries_of_a_send_succeed_and_the_bad_fail(sqs: Client) -> None:
    queue = sqs.create()
    entries = [
        {"Id": "good", "MessageBody": "a", "MessageAttributes": {"n": text("v")}},
        {"Id": "characters", "MessageBody": "\x01"},
        {"Id": "empty", "MessageBody": ""},
        {"Id": "delay", "MessageBody": "a", "DelaySeconds": 901},
        {"Id": "attribute", "MessageBody": "a", "MessageAttributes": {"AWS.x": text("v")}},
        {"Id": "also_good", "MessageBody": "b"},
    ]
    answer = sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["good", "also_good"]
    failed = {each["Id"]: each["Code"] for each in answer["Failed"]}
    assert failed == {
        "characters": "InvalidMessageContents",
        "empty": "MissingParameter",
        "delay": "InvalidParameterValue",
        "attribute": "InvalidParameterValue",
    }
    assert all(str(each["SenderFault"]).lower() == "true" for each in answer["Failed"])
    assert all(each["Message"] for each in answer["Failed"])
    assert answer["Successful"][0]["MD5OfMessageAttributes"]
    assert sqs.bodies(queue) == ["a", "b"]


@pytest.mark.parametrize(
    ("action", "entry", "lacks"),
    [
        ("SendMessageBatch", {}, "SendMessageBatchRequestEntry.2.MessageBody"),
        ("SendMessageBatch", {"MessageBody": ""}, "SendMessageBatchRequestEntry.2.MessageBody"),
        ("DeleteMessageBatch", {}, "ReceiptHandle"),
        ("DeleteMessageBatch", {"ReceiptHandle": ""}, "ReceiptHandle"),
        ("ChangeMessageVisibilityBatch", {"VisibilityTimeout": 1}, "ReceiptHandle"),
        (
            "ChangeMessageVisibilityBatch",
            {"ReceiptHandle": "x"},
            "ChangeMessageVisibilityBatchRequestEntry.2.VisibilityTimeout",
        ),
    ],
)
def test_R150_an_entry_is_told_what_it_lacks(
    sqs: Client, action: str, entry: dict[str, Any], lacks: str
) -> None:
    entries = [*_entries(action, "first"), {"Id": "second", **entry}]
    answer = sqs(action, QueueUrl=sqs.create(), Entries=entries)
    failed = answer["Failed"][-1]
    assert (failed["Id"], failed["Code"]) == ("second", "MissingParameter")
    assert failed["Message"] == f"The request must contain the parameter {lacks}."


@pytest.mark.parametrize("action", BATCHES)
def test_R150_entries_that_are_missing_are_an_empty_batch_in_the_query_protocol_only(
    sqs: Client, action: str
) -> None:
    with pytest.raises(Refused) as refused:
        sqs(action, QueueUrl=sqs.create())
    if sqs.protocol == "json":
        assert refused.value.code == "MissingParameter"
        assert refused.value.message == "The request must contain the parameter Entries."
    else:
        assert refused.value.code == PREFIX + "EmptyBatchRequest"


def test_R55_what_is_empty_is_left_out_of_the_answer(sqs: Client) -> None:
    queue = sqs.create()
    answer = sqs("SendMessageBatch", QueueUrl=queue, Entries=_entries("SendMessageBatch", "a"))
    assert set(answer) == {"Successful"}
    answer = sqs("DeleteMessageBatch", QueueUrl=queue, Entries=_entries("DeleteMessageBatch", "a"))
    assert set(answer) == {"Failed"}


def test_R55_a_batch_of_more_than_one_mebibyte_is_too_long(sqs: Client) -> None:
    queue = sqs.create()
    entries = [{"Id": str(i), "MessageBody": "x" * 110_000} for i in range(10)]
    with pytest.raises(Refused) as refused:
        sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    assert refused.value.code == PREFIX + "BatchRequestTooLong"
    assert "You have sent 1100000 bytes." in refused.value.message
    assert sqs.counts(queue) == (0, 0, 0)


def test_R55_each_entry_has_its_own_delay_attributes_and_priority(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    high = {"Pillarbox.Priority": text("9", "Number")}
    entries = [
        {"Id": "a", "MessageBody": "plain"},
        {"Id": "b", "MessageBody": "later", "DelaySeconds": 5},
        {"Id": "c", "MessageBody": "high", "MessageAttributes": high},
        {"Id": "d", "MessageBody": "latest", "DelaySeconds": 9},
    ]
    answer = sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["a", "b", "c", "d"]
    assert len({each["MessageId"] for each in answer["Successful"]}) == 4
    assert sqs.counts(queue) == (2, 0, 2)
    assert sqs.bodies(queue) == ["high", "plain"]
    world.clock.advance(5)
    assert sqs.bodies(queue) == ["later"]
    world.clock.advance(4)
    assert sqs.bodies(queue) == ["latest"]


def test_R55_a_batch_keeps_the_order_of_its_entries(sqs: Client) -> None:
    queue = sqs.create()
    entries = [{"Id": str(i), "MessageBody": str(i)} for i in range(10)]
    sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    assert sqs.bodies(queue) == [str(i) for i in range(10)]


def test_R55_a_delete_fails_by_entry(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    for body in "abc":
        sqs.send(queue, body)
    messages = sqs.receive(queue, VisibilityTimeout=5)
    entries = [{"Id": m["Body"], "ReceiptHandle": m["ReceiptHandle"]} for m in messages]
    entries.insert(1, {"Id": "bad", "ReceiptHandle": "nonsense"})
    answer = sqs("DeleteMessageBatch", QueueUrl=queue, Entries=entries)
    assert sorted(each["Id"] for each in answer["Successful"]) == ["a", "b", "c"]
    assert [(x["Id"], x["Code"]) for x in answer["Failed"]] == [("bad", "ReceiptHandleIsInvalid")]
    world.clock.advance(10)
    assert sqs.bodies(queue) == []


def test_R55_a_batch_deletes_by_expired_handles_on_a_standard_queue(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    for body in "ab":
        sqs.send(queue, body)
    messages = sqs.receive(queue, VisibilityTimeout=5)
    world.clock.advance(6)
    entries = [{"Id": m["Body"], "ReceiptHandle": m["ReceiptHandle"]} for m in messages]
    answer = sqs("DeleteMessageBatch", QueueUrl=queue, Entries=entries)
    assert len(answer["Successful"]) == 2
    assert sqs.counts(queue) == (0, 0, 0)


@pytest.mark.parametrize("group", [{}, {"MessageGroupId": "tenant"}])
def test_R55_a_batch_may_name_one_message_by_two_old_handles(
    sqs: Client, group: dict[str, str]
) -> None:
    queue = sqs.create()
    for body in ("a", "b"):
        sqs.send(queue, body, **group)
    old = [sqs.receive(queue, 1, VisibilityTimeout=0)[0] for _ in range(2)]
    assert [message["Body"] for message in old] == ["a", "a"]
    entries = [
        {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]} for at, message in enumerate(old)
    ]
    answer = sqs("DeleteMessageBatch", QueueUrl=queue, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["0", "1"]
    assert "Failed" not in answer
    assert sqs.bodies(queue) == ["b"]


def test_R55_visibility_changes_by_entry(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    for body in "ab":
        sqs.send(queue, body)
    a, b = sqs.receive(queue, VisibilityTimeout=30)
    entries: list[dict[str, Any]] = [
        {"Id": "now", "ReceiptHandle": a["ReceiptHandle"], "VisibilityTimeout": 0},
        {"Id": "long", "ReceiptHandle": b["ReceiptHandle"], "VisibilityTimeout": 60},
        {"Id": "bad", "ReceiptHandle": "nonsense", "VisibilityTimeout": 60},
        {"Id": "range", "ReceiptHandle": b["ReceiptHandle"], "VisibilityTimeout": 43_201},
        {"Id": "none", "ReceiptHandle": b["ReceiptHandle"]},
    ]
    answer = sqs("ChangeMessageVisibilityBatch", QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["now", "long"]
    assert {each["Id"]: each["Code"] for each in answer["Failed"]} == {
        "bad": "ReceiptHandleIsInvalid",
        "range": "InvalidParameterValue",
        "none": "MissingParameter",
    }
    assert sqs.bodies(queue) == ["a"]
    world.clock.advance(31)
    assert sqs.bodies(queue) == ["a"]
    world.clock.advance(30)
    assert sorted(sqs.bodies(queue)) == ["a", "b"]
