"""FIFO queues: groups, order, deduplication, sequence numbers, attempts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.support import Client, Refused, World


def _send(sqs: Client, queue: str, body: str, group: str = "g", **more: Any) -> dict[str, Any]:
    more.setdefault("MessageDeduplicationId", body)
    return sqs.send(queue, body, MessageGroupId=group, **more)


def test_R55_a_group_is_delivered_in_order(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    for body in "abcde":
        _send(sqs, queue, body)
    assert sqs.bodies(queue, 3) == ["a", "b", "c"]


def test_R55_while_some_of_a_group_are_in_flight_the_rest_waits(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True)
    for body in "abc":
        _send(sqs, queue, body)
    (a,) = sqs.receive(queue, 1)
    assert sqs.bodies(queue) == []
    sqs.delete(queue, a)
    assert sqs.bodies(queue) == ["b", "c"]


def test_R55_a_group_that_waits_does_not_hold_up_another(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    _send(sqs, queue, "a1", "a")
    _send(sqs, queue, "a2", "a")
    _send(sqs, queue, "b1", "b")
    assert sqs.bodies(queue, 1) == ["a1"]
    assert sqs.bodies(queue) == ["b1"]


def test_R55_a_receive_drains_one_group_before_the_next(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    for number in range(3):
        for group in "ab":
            _send(sqs, queue, f"{group}{number}", group)
    assert sqs.bodies(queue, 4) == ["a0", "a1", "a2", "b0"]


def test_R55_a_message_whose_time_ran_out_comes_back_before_those_after_it(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True)
    for body in "abc":
        _send(sqs, queue, body)
    sqs.receive(queue, 2, VisibilityTimeout=5)
    world.clock.advance(6)
    assert sqs.bodies(queue) == ["a", "b", "c"]


def test_R55_messages_of_a_blocked_group_count_as_visible(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    for body in "abc":
        _send(sqs, queue, body)
    sqs.receive(queue, 1)
    assert sqs.counts(queue) == (2, 1, 0)


def test_R55_the_same_deduplication_id_is_accepted_and_delivered_once(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    first = _send(sqs, queue, "a", MessageDeduplicationId="one")
    second = _send(sqs, queue, "other", MessageDeduplicationId="one")
    assert second["MessageId"] == first["MessageId"]
    assert second["SequenceNumber"] == first["SequenceNumber"]
    assert sqs.bodies(queue) == ["a"]


def test_R55_deduplication_lasts_five_minutes(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True)
    _send(sqs, queue, "a", MessageDeduplicationId="one")
    world.clock.advance(299)
    _send(sqs, queue, "b", MessageDeduplicationId="one")
    world.clock.advance(2)
    _send(sqs, queue, "c", MessageDeduplicationId="one")
    assert sqs.bodies(queue) == ["a", "c"]


def test_R55_deduplication_outlives_a_delete(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    _send(sqs, queue, "a", MessageDeduplicationId="one")
    sqs.delete(queue, sqs.receive(queue)[0])
    _send(sqs, queue, "b", MessageDeduplicationId="one")
    assert sqs.counts(queue) == (0, 0, 0)


def test_R55_deduplication_does_not_outlive_a_purge(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    _send(sqs, queue, "a", MessageDeduplicationId="one")
    sqs("PurgeQueue", QueueUrl=queue)
    _send(sqs, queue, "b", MessageDeduplicationId="one")
    assert sqs.bodies(queue) == ["b"]


def test_R55_content_based_deduplication_goes_by_the_body_alone(sqs: Client) -> None:
    queue = sqs.create(fifo=True, ContentBasedDeduplication="true")
    attributes = {"n": {"DataType": "String", "StringValue": "v"}}
    for body, more in (("a", {}), ("a", {"MessageAttributes": attributes}), ("b", {})):
        sqs.send(queue, body, MessageGroupId="g", **more)
    assert sqs.bodies(queue) == ["a", "b"]


def test_R55_an_explicit_id_goes_before_the_content(sqs: Client) -> None:
    queue = sqs.create(fifo=True, ContentBasedDeduplication="true")
    _send(sqs, queue, "a", MessageDeduplicationId="one")
    _send(sqs, queue, "a", MessageDeduplicationId="two")
    assert sqs.bodies(queue) == ["a", "a"]


@pytest.mark.parametrize(("scope", "expected"), [("queue", ["a"]), ("messageGroup", ["a", "b"])])
def test_R55_the_scope_of_deduplication_is_the_queue_or_the_group(
    sqs: Client, scope: str, expected: list[str]
) -> None:
    queue = sqs.create(fifo=True, DeduplicationScope=scope)
    _send(sqs, queue, "a", "g1", MessageDeduplicationId="one")
    _send(sqs, queue, "b", "g2", MessageDeduplicationId="one")
    assert sqs.bodies(queue) == expected


def test_R55_high_throughput_mode_can_be_set_and_needs_the_groups_scope(sqs: Client) -> None:
    queue = sqs.create(
        fifo=True, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId"
    )
    assert sqs.attributes(queue)["FifoThroughputLimit"] == "perMessageGroupId"
    with pytest.raises(Refused, match="DeduplicationScope"):
        sqs.create(fifo=True, DeduplicationScope="queue", FifoThroughputLimit="perMessageGroupId")


def test_R55_sequence_numbers_are_twenty_digits_and_grow(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    numbers = [_send(sqs, queue, body)["SequenceNumber"] for body in "abc"]
    assert numbers == sorted(set(numbers))
    assert all(len(number) == 20 and number.isdecimal() for number in numbers)
    assert not any(number.startswith("0") for number in numbers)
    messages = sqs.receive(queue, AttributeNames=["All"])
    assert [message["Attributes"]["SequenceNumber"] for message in messages] == numbers


def test_R55_group_and_deduplication_id_are_told(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    _send(sqs, queue, "a", "orders", MessageDeduplicationId="one")
    known = sqs.receive(queue, AttributeNames=["All"])[0]["Attributes"]
    assert (known["MessageGroupId"], known["MessageDeduplicationId"]) == ("orders", "one")


def test_R55_a_standard_queue_has_no_sequence_numbers(sqs: Client) -> None:
    queue = sqs.create()
    assert "SequenceNumber" not in sqs.send(queue, "a")
    assert "SequenceNumber" not in sqs.receive(queue, AttributeNames=["All"])[0]["Attributes"]


def test_R55_on_a_FIFO_queue_an_expired_handle_does_not_delete(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True)
    _send(sqs, queue, "a")
    (message,) = sqs.receive(queue, VisibilityTimeout=5)
    world.clock.advance(6)
    with pytest.raises(Refused) as refused:
        sqs.delete(queue, message)
    assert refused.value.code == "InvalidParameterValue"
    assert "The receipt handle has expired" in refused.value.message
    assert sqs.bodies(queue) == ["a"]


def test_R55_the_queues_delay_holds_for_a_FIFO_queue(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True, DelaySeconds=5)
    _send(sqs, queue, "a")
    _send(sqs, queue, "b", DelaySeconds=0)
    assert sqs.counts(queue) == (0, 0, 2)
    world.clock.advance(5)
    assert sqs.bodies(queue) == ["a", "b"]


def test_R55_a_batch_is_deduplicated_within_itself(sqs: Client) -> None:
    queue = sqs.create(fifo=True)
    entries = [
        {
            "Id": f"e{i}",
            "MessageBody": str(i),
            "MessageGroupId": "g",
            "MessageDeduplicationId": name,
        }
        for i, name in enumerate(("one", "two", "one"))
    ]
    answer = sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    ids = [each["MessageId"] for each in answer["Successful"]]
    assert ids[0] == ids[2] != ids[1]
    assert sqs.bodies(queue) == ["0", "1"]


def test_R55_an_attempt_that_is_repeated_gets_the_same_messages_and_handles(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True)
    for body in "abc":
        _send(sqs, queue, body)
    first = sqs.receive(queue, 2, ReceiveRequestAttemptId="try", VisibilityTimeout=10)
    world.clock.advance(8)
    again = sqs.receive(queue, 2, ReceiveRequestAttemptId="try", VisibilityTimeout=10)
    assert again == first
    world.clock.advance(8)  # the second try hid them for as long again
    assert sqs.bodies(queue) == []
    assert sqs.bodies(queue, ReceiveRequestAttemptId="another") == []


def test_R55_an_attempt_whose_messages_were_touched_is_a_new_one(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True)
    for body in "ab":
        _send(sqs, queue, body)
    first = sqs.receive(queue, 1, ReceiveRequestAttemptId="try")
    sqs.delete(queue, first[0])
    assert sqs.bodies(queue, 1, ReceiveRequestAttemptId="try") == ["b"]


def test_R55_an_attempt_is_forgotten_after_five_minutes(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(fifo=True)
    _send(sqs, queue, "a")
    first = sqs.receive(queue, 1, ReceiveRequestAttemptId="try", VisibilityTimeout=1000)
    world.clock.advance(301)
    assert sqs.receive(queue, 1, ReceiveRequestAttemptId="try") == []
    sqs.delete(queue, first[0])


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("MessageGroupId", "The request must contain the parameter MessageGroupId."),
        ("MessageDeduplicationId", "The queue should either have ContentBasedDeduplication"),
    ],
)
def test_R55_a_batch_with_an_entry_that_can_not_be_ordered_fails_whole(
    sqs: Client, left_out: str, said: str
) -> None:
    """Unlike other entries that are wrong: what comes after this one would overtake it."""
    queue = sqs.create(fifo=True)
    entries = [
        {
            "Id": name,
            "MessageBody": name,
            "MessageGroupId": "g",
            "MessageDeduplicationId": name,
        }
        for name in ("a", "b")
    ]
    del entries[1][left_out]
    with pytest.raises(Refused) as refused:
        sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    assert refused.value.code == "InvalidParameterValue"
    assert said in refused.value.message
    assert sqs.bodies(queue) == []
