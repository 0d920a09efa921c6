"""R22, R34: what fails on the way to SQS, or in it, and what a mailbox makes of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pillarbox import (
    DeadLetterPolicy,
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    SerializationError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.sqs import (
    BatchError,
    PurgeInProgressError,
    SQSMailbox,
    UnsupportedOperationError,
)
from pillarbox.mailbox.sqs.call import ATTEMPTS_MAX
from tests.sqs.conftest import Open
from tests.sqs.faulty_proxy import (
    FaultyProxy,
    failed_entries,
    lost_answer,
    lost_request,
    refusal,
)

AGAIN = {
    "throttled": refusal(400, "RequestThrottled"),
    "too many requests": refusal(429, "TooManyRequests"),
    "an internal error": refusal(500, "InternalError"),
    "unavailable": refusal(503, "ServiceUnavailable"),
    "a lost connection": lost_request,
}

FOR_GOOD: dict[str, tuple[Any, type[MailboxError]]] = {
    "throttled": (AGAIN["throttled"], MailboxFullError),
    "unavailable": (AGAIN["unavailable"], MailboxConnectionError),
    "a lost connection": (lost_request, UnknownOutcomeError),
}

AT_ONCE: dict[str, tuple[Any, type[MailboxError], str]] = {
    "no such queue": (refusal(400, "QueueDoesNotExist"), InvalidParameterError, "create=True"),
    "denied": (refusal(403, "AccessDenied"), MailboxError, "sqs:SendMessage"),
    "contents": (refusal(400, "InvalidMessageContents"), SerializationError, "told to"),
    "anything else": (refusal(400, "KmsDisabled"), MailboxError, "KmsDisabled"),
}


@pytest.mark.parametrize("fault", AGAIN.values(), ids=AGAIN.keys())
def test_R34_what_may_be_over_soon_is_tried_again(
    fault: Any, behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    proxy.faults["SendMessage"] = [fault, fault]
    box.send("a")
    assert proxy.calls["SendMessage"] == 3
    assert [m.body for m in box.receive(max_messages=10)] == ["a"]


@pytest.mark.parametrize(("fault", "kind"), FOR_GOOD.values(), ids=FOR_GOOD.keys())
def test_R22_what_is_not_over_soon_is_an_error(
    fault: Any, kind: type[MailboxError], behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    proxy.faults["SendMessage"] = [fault] * ATTEMPTS_MAX
    with pytest.raises(kind, match=box.name) as raised:
        box.send("a")
    assert raised.value.retryable is (kind is not UnknownOutcomeError)
    assert proxy.calls["SendMessage"] == ATTEMPTS_MAX
    assert list(box.receive()) == []


@pytest.mark.parametrize(("fault", "kind", "text"), AT_ONCE.values(), ids=AT_ONCE.keys())
def test_R22_what_will_not_change_is_an_error_at_once(
    fault: Any, kind: type[MailboxError], text: str, behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    proxy.faults["SendMessage"] = [fault]
    with pytest.raises(kind, match=text) as raised:
        box.send("a")
    assert box.name in str(raised.value)
    assert proxy.calls["SendMessage"] == 1


def test_R22_a_server_that_is_not_there_is_a_connection_error() -> None:
    with pytest.raises(MailboxConnectionError, match="endpoint"):
        SQSMailbox("orders", str, endpoint="http://127.0.0.1:1")


def test_R34_a_queue_that_is_not_there_says_what_to_do(endpoint: str) -> None:
    with pytest.raises(InvalidParameterError, match="create=True"):
        SQSMailbox("no-such-queue", str, endpoint=endpoint)


def test_R34_a_fifo_message_whose_answer_was_lost_is_sent_once(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy(suffix=".fifo")
    proxy.faults["SendMessage"] = [lost_answer]
    box.send("a")
    assert proxy.calls["SendMessage"] == 2
    assert box.approximate_count() == 1


def test_R12_control_on_a_standard_queue_it_is_there_twice(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    proxy.faults["SendMessage"] = [lost_answer]
    box.send("a")
    assert box.approximate_count() == 2


def test_R34_a_fifo_receive_whose_answer_was_lost_gets_it_again(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy(suffix=".fifo")
    box.send("a", group="g")
    proxy.faults["ReceiveMessage"] = [lost_answer]
    assert [m.body for m in box.receive()] == ["a"]
    assert proxy.calls["ReceiveMessage"] == 2


def test_R12_control_on_a_standard_queue_it_comes_when_its_lease_has_run_out(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    box.send("a")
    proxy.faults["ReceiveMessage"] = [lost_answer]
    assert list(box.receive(visibility_timeout=1)) == []
    assert [m.delivery_count for m in box.receive(wait_time_seconds=20)] == [2]


def test_R34_entries_that_failed_for_no_fault_of_ours_are_sent_again(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    proxy.faults["SendMessageBatch"] = [failed_entries(1, 3), failed_entries(0)]
    ids = box.send_many(["0", "1", "2", "3"])
    received = {m.id: m.body for m in box.receive(max_messages=10)}
    assert [received[each] for each in ids] == ["0", "1", "2", "3"]
    assert proxy.calls["SendMessageBatch"] == 3


def test_R34_entries_that_fail_for_good_are_reported_one_by_one(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    bad = failed_entries(1, code="InvalidMessageContents", sender=True)
    proxy.faults["SendMessageBatch"] = [bad]
    with pytest.raises(BatchError, match="1 of 3 messages") as raised:
        box.send_many(["0", "1", "2"])
    error = raised.value
    assert {place: type(each) for place, each in error.failed.items()} == {1: SerializationError}
    received = {m.id: m.body for m in box.receive(max_messages=10)}
    assert {place: received[each] for place, each in error.sent.items()} == {0: "0", 2: "2"}
    assert error.retryable is False
    again = copy.copy(error)  # by the way that pickle would take
    assert (again.sent, str(again)) == (error.sent, str(error))


def test_R34_a_batch_that_breaks_half_way_says_what_was_sent(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()

    def forward(ask: Any, ahead: Any) -> Any:
        return ahead(ask)

    proxy.faults["SendMessageBatch"] = [forward, *[lost_request] * ATTEMPTS_MAX]
    with pytest.raises(BatchError) as raised:
        box.send_many([str(n) for n in range(25)])
    error = raised.value
    assert sorted(error.failed) == list(range(10, 20))
    assert sorted(error.sent) == [*range(10), *range(20, 25)]
    assert isinstance(error.failed[10], UnknownOutcomeError)
    assert error.retryable is False


def test_R16_on_a_fifo_queue_nothing_overtakes_a_batch_that_failed(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy(suffix=".fifo")
    proxy.faults["SendMessageBatch"] = [failed_entries(9, code="InternalFailure", sender=True)]
    with pytest.raises(BatchError) as raised:
        box.send_many([str(n) for n in range(25)], group="g")
    assert sorted(raised.value.failed) == list(range(9, 25))
    assert proxy.calls["SendMessageBatch"] == 1


def test_R34_acknowledgements_that_failed_are_made_again(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    box.send_many(["a", "b", "c"])
    messages = box.receive(max_messages=10)
    proxy.faults["DeleteMessageBatch"] = [failed_entries(0, 2)]
    assert box.acknowledge_many(messages) == [True, True, True]
    assert box.approximate_count() == 0


def test_R15_what_sqs_calls_stale_is_false(behind_proxy: Open, proxy: FaultyProxy) -> None:
    box = behind_proxy()
    box.send_many(["a", "b", "c"])
    messages = box.receive(max_messages=10)
    stale = failed_entries(1, code="ReceiptHandleIsInvalid", sender=True)
    proxy.faults["DeleteMessageBatch"] = [stale]
    assert box.acknowledge_many(messages) == [True, False, True]
    proxy.faults["ChangeMessageVisibility"] = [refusal(400, "MessageNotInflight")]
    box.send("d")
    (held,) = box.receive()
    assert held.extend_visibility(10) is False


def test_R6_an_acknowledgement_that_could_not_be_made_can_be_made_later(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    box.send("a")
    (message,) = box.receive()
    proxy.faults["DeleteMessage"] = [lost_request] * ATTEMPTS_MAX
    with pytest.raises(UnknownOutcomeError):
        message.acknowledge()
    assert message.acknowledge() is True
    assert message.acknowledge() is False


def test_R15_a_message_that_was_settled_is_not_asked_about_again(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    box.send("a")
    (message,) = box.receive()
    assert message.acknowledge()
    assert message.acknowledge() is False
    assert message.nack() is False
    assert (proxy.calls["DeleteMessage"], proxy.calls["ChangeMessageVisibility"]) == (1, 0)


def test_R3_a_purge_within_a_minute_of_another_is_an_error_of_its_own(open_box: Open) -> None:
    box = open_box()
    box.send_many(["a", "b"])
    assert box.purge() == 2
    with pytest.raises(PurgeInProgressError, match="60 seconds") as raised:
        box.purge()
    assert raised.value.retryable


def test_R34_a_wrong_call_is_refused_before_sqs_is_asked(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy()
    wrong = [
        lambda: box.send("a", delay_seconds=901),
        lambda: box.send("a" * 1_048_577),
        lambda: box.send_many(["a", "b" * 1_048_577]),
        lambda: box.send("a", group="g"),
        lambda: box.send("a", deduplication_id="d"),
        lambda: box.receive(wait_time_seconds=21),
        lambda: box.receive(visibility_timeout=43_201),
        lambda: box.receive(max_messages=0),
        lambda: box.redrive(to=box.name),
        lambda: box.redrive("an-id"),
    ]
    for call in wrong:
        with pytest.raises(InvalidParameterError):
            call()
    assert not proxy.calls


def test_R34_a_fifo_queue_refuses_a_delay_of_one_message(open_box: Open) -> None:
    with pytest.raises(InvalidParameterError, match="FIFO"):
        open_box(suffix=".fifo").send("a", delay_seconds=1)


def test_R37_what_sqs_can_t_do_is_an_error_that_says_what_to_do(open_box: Open) -> None:
    box = open_box()
    with pytest.raises(UnsupportedOperationError, match="receive them"):
        box.peek()
    with pytest.raises(UnsupportedOperationError, match="acknowledge"):
        box.delete(["an-id"])


def test_R39_on_a_server_without_move_tasks_dead_letters_are_moved_one_by_one(
    behind_proxy: Open, proxy: FaultyProxy
) -> None:
    box = behind_proxy(dead_letters=DeadLetterPolicy(1))
    letters = box.dead_letters
    assert letters is not None
    box.send_many([str(n) for n in range(12)], attributes={"colour": "red"}, priority=3)
    for message in box.receive(max_messages=12):
        message.nack()
    assert list(box.receive(max_messages=12)) == []
    proxy.faults["StartMessageMoveTask"] = [refusal(400, "UnsupportedOperation")]
    assert letters.redrive() == 12
    back = box.receive(max_messages=12)
    assert sorted(int(m.body) for m in back) == list(range(12))
    assert {(m.attributes["colour"], m.priority, m.delivery_count) for m in back} == {("red", 3, 1)}
    assert letters.approximate_count() == 0
