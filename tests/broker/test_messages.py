"""SendMessage, ReceiveMessage, DeleteMessage, ChangeMessageVisibility: the rules of AWS."""

from __future__ import annotations

import base64
import hashlib
import threading
from typing import Any

import pytest

from tests.broker.native.support import until
from tests.broker.support import Client, Refused, World, text


def test_R55_a_message_comes_back_as_it_was_sent(sqs: Client) -> None:
    queue = sqs.create()
    told = sqs.send(queue, "two boxes")
    (message,) = sqs.receive(queue)
    assert message["Body"] == "two boxes"
    assert message["MessageId"] == told["MessageId"]


def test_R55_the_body_has_an_MD5_when_sent_and_when_received(sqs: Client) -> None:
    queue = sqs.create()
    md5 = hashlib.md5("zwölf".encode()).hexdigest()
    assert sqs.send(queue, "zwölf")["MD5OfMessageBody"] == md5
    assert sqs.receive(queue)[0]["MD5OfBody"] == md5


@pytest.mark.parametrize(
    "body",
    [
        "a & b < c > d \"e\" 'f'",
        "line\r\nline\rline\nline\ttab",
        "snow \u2603, grin \U0001f600, last \ufffd",
        "]]>&amp;&#13;",
        " leading and trailing ",
    ],
)
def test_R55_every_allowed_character_survives_both_protocols(sqs: Client, body: str) -> None:
    queue = sqs.create()
    sqs.send(queue, body)
    assert sqs.bodies(queue) == [body]


@pytest.mark.parametrize("code", [0x0, 0x8, 0xB, 0xC, 0xE, 0x1F, 0xFFFE, 0xFFFF])
def test_R55_a_character_outside_the_allowed_ranges_is_refused(sqs: Client, code: int) -> None:
    queue = sqs.create()
    with pytest.raises(Refused) as refused:
        sqs.send(queue, f"a{chr(code)}b")
    assert refused.value.code == "InvalidMessageContents"
    assert f"#x{code:X}" in refused.value.message
    assert sqs.counts(queue) == (0, 0, 0)


@pytest.mark.parametrize("code", [0x9, 0xA, 0xD, 0x20, 0xD7FF, 0xE000, 0xFFFD, 0x10000, 0x10FFFF])
def test_R55_the_ends_of_the_allowed_ranges_are_allowed(sqs: Client, code: int) -> None:
    queue = sqs.create()
    sqs.send(queue, f"a{chr(code)}b")
    assert sqs.bodies(queue) == [f"a{chr(code)}b"]


def test_R55_an_empty_receive_leaves_Messages_out(sqs: Client) -> None:
    queue = sqs.create()
    assert sqs("ReceiveMessage", QueueUrl=queue) == {}


def test_R55_a_receive_takes_one_message_unless_more_are_asked_for(sqs: Client) -> None:
    queue = sqs.create()
    for body in "abc":
        sqs.send(queue, body)
    assert len(sqs("ReceiveMessage", QueueUrl=queue)["Messages"]) == 1


def test_R55_a_receive_takes_at_most_ten(sqs: Client) -> None:
    queue = sqs.create()
    for number in range(12):
        sqs.send(queue, str(number))
    assert len(sqs.receive(queue, 10)) == 10


def test_R55_a_received_message_is_hidden_for_its_visibility_timeout(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    sqs.send(queue, "a")
    assert sqs.bodies(queue, VisibilityTimeout=20) == ["a"]
    world.clock.advance(19.9)
    assert sqs.bodies(queue) == []
    world.clock.advance(0.2)
    assert sqs.bodies(queue) == ["a"]


def test_R55_the_queues_visibility_timeout_is_the_default(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(VisibilityTimeout=7)
    sqs.send(queue, "a")
    assert sqs.bodies(queue) == ["a"]
    world.clock.advance(6.9)
    assert sqs.bodies(queue) == []
    world.clock.advance(0.2)
    assert sqs.bodies(queue) == ["a"]


def test_R55_an_explicit_visibility_of_zero_is_not_unset(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a")
    assert sqs.bodies(queue, VisibilityTimeout=0) == ["a"]
    assert sqs.bodies(queue, VisibilityTimeout=0) == ["a"]


def test_R55_each_receive_has_another_handle(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a")
    handles = {sqs.receive(queue, VisibilityTimeout=0)[0]["ReceiptHandle"] for _ in range(3)}
    assert len(handles) == 3


def test_R55_a_deleted_message_never_comes_back(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue)
    sqs.delete(queue, message)
    world.clock.advance(100)
    assert sqs.bodies(queue) == []
    assert sqs.counts(queue) == (0, 0, 0)


def test_R55_deleting_twice_succeeds(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue)
    sqs.delete(queue, message)
    sqs.delete(queue, message)


def test_R55_a_standard_queue_deletes_by_an_expired_handle(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    for body in "abc":
        sqs.send(queue, body)
    (message,) = sqs.receive(queue, 1, VisibilityTimeout=5)
    world.clock.advance(6)
    sqs.delete(queue, message)
    assert sorted(sqs.bodies(queue)) == ["b", "c"]


def test_R55_a_standard_queue_deletes_by_an_older_handle_while_another_holds_it(
    world: World,
) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    sqs.send(queue, "a")
    (old,) = sqs.receive(queue, VisibilityTimeout=5)
    world.clock.advance(6)
    (new,) = sqs.receive(queue)
    sqs.delete(queue, old)
    assert sqs.counts(queue) == (0, 0, 0)
    sqs.delete(queue, new)


@pytest.mark.parametrize("handle", ["garbage", "a.b.c", "1.1.1.0." + "0" * 32, "é☃", "x" * 2000])
def test_R55_a_handle_that_is_none_is_invalid(sqs: Client, handle: str) -> None:
    queue = sqs.create()
    for action, more in (
        ("DeleteMessage", {}),
        ("ChangeMessageVisibility", {"VisibilityTimeout": 1}),
    ):
        with pytest.raises(Refused) as refused:
            sqs(action, QueueUrl=queue, ReceiptHandle=handle, **more)
        assert refused.value.code == "ReceiptHandleIsInvalid"


def test_R55_a_handle_of_another_queue_is_invalid(sqs: Client) -> None:
    one, other = sqs.create(), sqs.create()
    sqs.send(one, "a")
    (message,) = sqs.receive(one)
    with pytest.raises(Refused) as refused:
        sqs.delete(other, message)
    assert refused.value.code == "ReceiptHandleIsInvalid"


def test_R55_every_altered_character_of_a_handle_makes_it_invalid(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a")
    handle = sqs.receive(queue)[0]["ReceiptHandle"]
    for at, letter in enumerate(handle):
        altered = handle[:at] + ("1" if letter != "1" else "2") + handle[at + 1 :]
        with pytest.raises(Refused, match="ReceiptHandleIsInvalid"):
            sqs("DeleteMessage", QueueUrl=queue, ReceiptHandle=altered)


def test_R55_visibility_can_be_extended(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue, VisibilityTimeout=10)
    handle = message["ReceiptHandle"]
    world.clock.advance(9)
    sqs("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=10)
    world.clock.advance(9)
    assert sqs.bodies(queue) == []
    world.clock.advance(2)
    assert sqs.bodies(queue) == ["a"]


def test_R55_visibility_zero_makes_a_message_visible_at_once(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a")
    handle = sqs.receive(queue)[0]["ReceiptHandle"]
    sqs("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0)
    assert sqs.bodies(queue) == ["a"]


def test_R55_visibility_may_be_shortened(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    sqs.send(queue, "a")
    handle = sqs.receive(queue, VisibilityTimeout=100)[0]["ReceiptHandle"]
    sqs("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=5)
    world.clock.advance(5.1)
    assert sqs.bodies(queue) == ["a"]


def test_R55_visibility_of_a_deleted_message_can_not_change(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue)
    sqs.delete(queue, message)
    with pytest.raises(Refused) as refused:
        sqs(
            "ChangeMessageVisibility",
            QueueUrl=queue,
            ReceiptHandle=message["ReceiptHandle"],
            VisibilityTimeout=5,
        )
    assert refused.value.code == "InvalidParameterValue"
    assert "not available for visibility timeout change" in refused.value.message


def test_R55_a_message_may_be_hidden_for_twelve_hours_in_all(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue, VisibilityTimeout=43_200)
    change: dict[str, Any] = {"QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"]}
    world.clock.advance(60)
    with pytest.raises(Refused, match="beyond the limit"):
        sqs("ChangeMessageVisibility", **change, VisibilityTimeout=43_200)
    sqs("ChangeMessageVisibility", **change, VisibilityTimeout=43_140)


def test_R55_a_message_may_be_delayed(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    sqs.send(queue, "a", DelaySeconds=10)
    assert sqs.counts(queue) == (0, 0, 1)
    assert sqs.bodies(queue) == []
    world.clock.advance(10)
    assert sqs.bodies(queue) == ["a"]


def test_R55_the_queues_delay_is_the_default(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(DelaySeconds=10)
    sqs.send(queue, "a")
    assert sqs.bodies(queue) == []
    world.clock.advance(10)
    assert sqs.bodies(queue) == ["a"]


def test_R55_an_explicit_delay_of_zero_overrides_the_queues(sqs: Client) -> None:
    queue = sqs.create(DelaySeconds=10)
    sqs.send(queue, "a", DelaySeconds=0)
    assert sqs.bodies(queue) == ["a"]


def test_R55_the_count_of_receives_and_their_times_are_told(world: World) -> None:
    sqs, queue, clock = world.sqs, world.sqs.create(), world.clock
    sent_ms = clock.now() // 1_000_000
    sqs.send(queue, "a")
    clock.advance(1)
    for number in (1, 2, 3):
        (message,) = sqs.receive(queue, AttributeNames=["All"], VisibilityTimeout=5)
        known = message["Attributes"]
        assert known["ApproximateReceiveCount"] == str(number)
        assert known["SentTimestamp"] == str(sent_ms)
        assert known["ApproximateFirstReceiveTimestamp"] == str(sent_ms + 1_000)
        assert known["SenderId"]
        clock.advance(6)


@pytest.mark.parametrize("parameter", ["AttributeNames", "MessageSystemAttributeNames"])
def test_R55_system_attributes_are_chosen_by_either_parameter(sqs: Client, parameter: str) -> None:
    queue = sqs.create()
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue, **{parameter: ["SentTimestamp"]})
    assert set(message["Attributes"]) == {"SentTimestamp"}


def test_R55_without_being_asked_no_attributes_are_told(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a", MessageAttributes={"x": text("1")})
    (message,) = sqs.receive(queue)
    assert set(message) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


ATTRIBUTES = {
    "Color": text("red"),
    "Size.width": text("3", "Number"),
    "Size.height": text("4.5e1", "Number.float"),
    "Blob": {"DataType": "Binary.png", "BinaryValue": base64.b64encode(b"\0\1\xff").decode()},
}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["All"], set(ATTRIBUTES)),
        ([".*"], set(ATTRIBUTES)),
        (["Color"], {"Color"}),
        (["Size.*"], {"Size.width", "Size.height"}),
        (["Color", "Blob"], {"Color", "Blob"}),
        (["Missing"], set()),
    ],
)
def test_R55_message_attributes_are_filtered_by_name_and_prefix(
    sqs: Client, names: list[str], expected: set[str]
) -> None:
    queue = sqs.create()
    sqs.send(queue, "a", MessageAttributes=ATTRIBUTES)
    (message,) = sqs.receive(queue, MessageAttributeNames=names)
    found = message.get("MessageAttributes", {})
    assert found == {name: ATTRIBUTES[name] for name in expected}
    md5 = message.get("MD5OfMessageAttributes")
    assert md5 == (_md5({name: ATTRIBUTES[name] for name in expected}) if expected else None)


def _md5(attributes: dict[str, dict[str, str]]) -> str:
    """The documented algorithm, written once more."""
    data = b""
    for name in sorted(attributes):
        kind = attributes[name]["DataType"]
        binary = kind.startswith("Binary")
        raw = attributes[name]["BinaryValue" if binary else "StringValue"]
        value = base64.b64decode(raw) if binary else raw.encode()
        for part in (name.encode(), kind.encode()):
            data += len(part).to_bytes(4, "big") + part
        data += (b"\x02" if binary else b"\x01") + len(value).to_bytes(4, "big") + value
    return hashlib.md5(data).hexdigest()


def test_R55_attributes_have_an_MD5_when_sent(sqs: Client) -> None:
    queue = sqs.create()
    told = sqs.send(queue, "a", MessageAttributes=ATTRIBUTES)
    assert told["MD5OfMessageAttributes"] == _md5(ATTRIBUTES)


def test_R55_the_trace_header_is_a_system_attribute_with_its_own_MD5(sqs: Client) -> None:
    queue = sqs.create()
    trace = {"AWSTraceHeader": text("Root=1-5759e988-bd862e3fe1be46a994272793")}
    told = sqs.send(queue, "a", MessageSystemAttributes=trace)
    assert told["MD5OfMessageSystemAttributes"] == _md5(trace)
    assert "MD5OfMessageAttributes" not in told
    (message,) = sqs.receive(
        queue, AttributeNames=["AWSTraceHeader"], MessageAttributeNames=["All"]
    )
    assert message["Attributes"] == {"AWSTraceHeader": trace["AWSTraceHeader"]["StringValue"]}
    assert "MessageAttributes" not in message


def test_R55_ten_attributes_are_allowed(sqs: Client) -> None:
    queue = sqs.create()
    sqs.send(queue, "a", MessageAttributes={f"n{i}": text("x") for i in range(10)})
    (message,) = sqs.receive(queue, MessageAttributeNames=["All"])
    assert len(message["MessageAttributes"]) == 10


def test_R55_on_a_standard_queue_a_group_orders_nothing_and_is_told(sqs: Client) -> None:
    queue = sqs.create()
    for body in "ab":
        sqs.send(queue, body, MessageGroupId="tenant")
    messages = sqs.receive(queue, AttributeNames=["MessageGroupId"])
    assert [m["Attributes"]["MessageGroupId"] for m in messages] == ["tenant", "tenant"]


def test_R55_one_mebibyte_is_allowed_and_one_byte_more_is_not(sqs: Client) -> None:
    queue = sqs.create()
    attributes = {"n": text("v" * 10)}
    room = 1_048_576 - len("n") - len("String") - 10
    sqs.send(queue, "x" * room, MessageAttributes=attributes)
    with pytest.raises(Refused, match="must be shorter than 1048576 bytes"):
        sqs.send(queue, "x" * (room + 1), MessageAttributes=attributes)


def test_R55_size_counts_bytes_and_the_queue_may_set_less(sqs: Client) -> None:
    queue = sqs.create(MaximumMessageSize=1_024)
    sqs.send(queue, "é" * 512)
    with pytest.raises(Refused, match="must be shorter than 1024 bytes"):
        sqs.send(queue, "é" * 512 + "x")


def test_R55_messages_are_deleted_after_their_retention_period(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(MessageRetentionPeriod=60)
    sqs.send(queue, "old")
    sqs.send(queue, "later", DelaySeconds=50)
    world.clock.advance(30)
    sqs.send(queue, "new")
    world.clock.advance(31)
    assert sqs.bodies(queue) == ["new"]
    assert sqs.counts(queue) == (0, 1, 0)


def test_R55_retention_needs_no_receive(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(MessageRetentionPeriod=60)
    sqs.send(queue, "old")
    world.clock.advance(70)

    def is_swept() -> bool:
        world.clock.advance(2)  # if the round before was still at work, a later one does it
        return sqs.counts(queue) == (0, 0, 0)

    until(is_swept, "it was swept")


def test_R14_a_long_poll_is_answered_by_the_first_message(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    found: list[list[str]] = []
    other = Client(world.url, sqs.protocol)
    thread = threading.Thread(target=lambda: found.append(other.bodies(queue, WaitTimeSeconds=20)))
    thread.start()
    world.until_parked(queue)
    sqs.send(queue, "a")
    thread.join()
    assert found == [["a"]]
    other.close()


def test_R14_a_long_poll_ends_empty_when_its_time_is_up(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create(ReceiveMessageWaitTimeSeconds=20)
    found: list[list[str]] = []
    other = Client(world.url, sqs.protocol)
    thread = threading.Thread(target=lambda: found.append(other.bodies(queue)))
    thread.start()
    world.until_parked(queue)
    world.clock.advance(20)
    thread.join()
    assert found == [[]]
    other.close()


def test_R14_an_explicit_wait_of_zero_overrides_the_queues(sqs: Client) -> None:
    queue = sqs.create(ReceiveMessageWaitTimeSeconds=20)
    assert sqs.bodies(queue, WaitTimeSeconds=0) == []


def test_R14_a_long_poll_is_woken_by_an_expired_lease(world: World) -> None:
    sqs, queue = world.sqs, world.sqs.create()
    sqs.send(queue, "a")
    sqs.receive(queue, VisibilityTimeout=5)
    found: list[list[str]] = []
    other = Client(world.url, sqs.protocol)
    thread = threading.Thread(target=lambda: found.append(other.bodies(queue, WaitTimeSeconds=20)))
    thread.start()
    world.until_parked(queue)
    world.clock.advance(5.1)
    thread.join()
    assert found == [["a"]]
    other.close()


def test_R55_too_many_in_flight_is_OverLimit_on_a_short_poll(world: World) -> None:
    from pillarbox.testing.broker import running_broker

    with running_broker(in_flight_max=3) as url:
        sqs = Client(url, world.sqs.protocol)
        queue = sqs.create()
        for number in range(5):
            sqs.send(queue, str(number))
        assert len(sqs.receive(queue)) == 5  # a batch may cross the line
        sqs.send(queue, "more")
        with pytest.raises(Refused) as refused:
            sqs.receive(queue)
        assert (refused.value.status, refused.value.code) == (403, "OverLimit")
        sqs.close()


def test_R17_priority_rides_on_a_message_attribute(sqs: Client) -> None:
    queue = sqs.create()
    for number in (3, 200, 7):
        priority = {"Pillarbox.Priority": text(str(number), "Number")}
        sqs.send(queue, str(number), MessageAttributes=priority)
    sqs.send(queue, "none")
    assert sqs.bodies(queue) == ["200", "7", "3", "none"]


@pytest.mark.parametrize("value", ["256", "-1", "1.5", "99999"])
def test_R17_a_priority_out_of_range_is_refused(sqs: Client, value: str) -> None:
    queue = sqs.create()
    with pytest.raises(Refused, match="0 to 255"):
        sqs.send(queue, "a", MessageAttributes={"Pillarbox.Priority": text(value, "Number")})
