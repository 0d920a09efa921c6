"""R55: what the store answers is what the client is told; a refused request changes nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pillarbox import MailboxError, open_mailbox
from pillarbox.log import RealDisk
from pillarbox.mailbox.broker import wire
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.native.support import RawClient, until
from tests.broker.support import Client, Refused

LEASE_SECONDS = 30


class LeapingClock(FakeClock):
    """Time that leaps past every lease after the clock was looked at so many times."""

    looks: int | None = None

    def now(self) -> int:
        now = super().now()
        if self.looks is not None:
            self.looks -= 1
            if self.looks <= 0:
                self.looks = None
                self.advance(2 * LEASE_SECONDS)
        return now


def _batch(sqs: Client, queue: str, handles: list[str]) -> list[bool]:
    """For each handle, whether its message is said to be deleted."""
    entries = [{"Id": str(n), "ReceiptHandle": each} for n, each in enumerate(handles)]
    answer = sqs("DeleteMessageBatch", QueueUrl=queue, Entries=entries)
    done = {each["Id"] for each in answer.get("Successful", [])}
    for each in answer.get("Failed", []):
        assert each["Code"] == "InvalidParameterValue"
        assert "expired" in each["Message"]
    assert len(done) + len(answer.get("Failed", [])) == len(handles)
    return [str(n) in done for n in range(len(handles))]


def _singly(sqs: Client, queue: str, handles: list[str]) -> list[bool]:
    answers = []
    for handle in handles:
        try:
            sqs("DeleteMessage", QueueUrl=queue, ReceiptHandle=handle)
            answers.append(True)
        except Refused:
            answers.append(False)
    return answers


def _natively(sqs: Client, queue: str, handles: list[str]) -> list[bool]:
    with RawClient(sqs.url) as native:
        (outcome,) = native.ask(queue.rpartition("/")[2], 1, wire.Acknowledge(handles))
    answers: list[bool] = outcome.value
    return answers


@pytest.mark.parametrize("looks", range(1, 7))
@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
@pytest.mark.parametrize("delete", [_batch, _singly, _natively])
def test_R55_what_is_said_to_be_deleted_is_gone_and_the_rest_is_there(
    delete: Callable[[Client, str, list[str]], list[bool]], fifo: bool, looks: int
) -> None:
    """At whatever moment of the request the leases end."""
    clock = LeapingClock()
    with running_broker(clock=clock) as url, Client(url) as sqs:
        queue = sqs.create(fifo=fifo)
        for n in range(3):
            ordered = {"MessageGroupId": str(n), "MessageDeduplicationId": str(n)} if fifo else {}
            sqs.send(queue, str(n), **ordered)
        messages = sqs.receive(queue, 3, VisibilityTimeout=LEASE_SECONDS)
        assert len(messages) == 3
        clock.looks = looks
        answers = delete(sqs, queue, [each["ReceiptHandle"] for each in messages])
        clock.looks = None
        clock.advance(2 * LEASE_SECONDS)
        left = set(sqs.bodies(queue))
        said = {m["Body"] for m, deleted in zip(messages, answers, strict=True) if not deleted}
        assert left == said
        assert fifo or delete is _natively or not left  # a late handle deletes on a standard queue


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_R55_one_handle_twice_in_a_batch_is_deleted_twice(fifo: bool) -> None:
    with running_broker(clock=FakeClock()) as url, Client(url) as sqs:
        queue = sqs.create(fifo=fifo)
        ordered = {"MessageGroupId": "g", "MessageDeduplicationId": "1"} if fifo else {}
        sqs.send(queue, "a", **ordered)
        (message,) = sqs.receive(queue)
        assert _batch(sqs, queue, [message["ReceiptHandle"]] * 2) == [True, True]
        assert _batch(sqs, queue, [message["ReceiptHandle"]]) == [True]


@pytest.mark.parametrize("looks", range(1, 7))
def test_R55_a_repeated_receive_attempt_tells_only_of_leases_that_live(looks: int) -> None:
    clock = LeapingClock()
    with running_broker(clock=clock) as url, Client(url) as sqs:
        queue = sqs.create(fifo=True)
        sqs.send(queue, "a", MessageGroupId="g", MessageDeduplicationId="1")
        sqs.receive(queue, ReceiveRequestAttemptId="x", VisibilityTimeout=LEASE_SECONDS)
        clock.looks = looks
        (again,) = sqs.receive(queue, ReceiveRequestAttemptId="x", VisibilityTimeout=3_600)
        clock.looks = None
        sqs.delete(queue, again)  # which a FIFO queue refuses for a lease that has ended
        assert sqs.counts(queue) == (0, 0, 0)


def test_R55_a_batch_that_is_half_sent_says_which_half() -> None:
    with running_broker() as url, Client(url) as sqs:
        with open_mailbox(f"{url}/orders", str, capacity=1):
            pass
        entries: list[dict[str, Any]] = [
            {"Id": "now", "MessageBody": "a"},
            {"Id": "later", "MessageBody": "b", "DelaySeconds": 9},
        ]
        answer = sqs("SendMessageBatch", QueueUrl="orders", Entries=entries)
        assert [each["Id"] for each in answer["Successful"]] == ["now"]
        assert [(x["Id"], x["Code"]) for x in answer["Failed"]] == [("later", "OverLimit")]
        assert sqs.counts("orders") == (1, 0, 0)
        with pytest.raises(Refused) as refused:  # nothing of it is sent
            sqs("SendMessageBatch", QueueUrl="orders", Entries=entries[:1])
        assert refused.value.code == "OverLimit"


def test_R55_a_refused_policy_changes_nothing() -> None:
    """Not even when the queue's dead letters die: the broker's own policy stays in force."""
    with running_broker() as url, Client(url) as sqs:
        with open_mailbox(f"{url}/orders", str):
            pass
        session = url.broker.store.sessions["orders"]
        before = session.queue.settings
        target = sqs.arn("orders").replace("orders", "nowhere")
        policy = json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": 3})
        with pytest.raises(Refused, match="does not exist"):
            sqs("SetQueueAttributes", QueueUrl="orders", Attributes={"RedrivePolicy": policy})
        assert session.queue.settings == before


# -- a disk that fails ---------------------------------------------------------------------------


def _break_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: RealDisk, handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(RealDisk, "fdatasync", fail)


def _by_SQS(url: RunningBroker) -> None:
    with Client(url) as sqs, pytest.raises(Refused) as refused:
        sqs.receive("orders", WaitTimeSeconds=20)
    assert refused.value.code == "ServiceUnavailable"


def _by_a_mailbox(url: RunningBroker) -> None:
    with open_mailbox(f"{url}/orders", str) as box, pytest.raises(MailboxError, match="read-only"):
        box.receive(wait_time_seconds=20)


@pytest.mark.parametrize("receive", [_by_SQS, _by_a_mailbox])
def test_R58_whoever_waits_is_told_that_the_disk_failed(
    receive: Callable[[RunningBroker], None], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease ends while they wait, which can't be put on record any more."""
    clock = FakeClock()
    outcomes: list[str] = []

    def wait() -> None:
        receive(url)
        outcomes.append("told")

    with running_broker(store, "fsync", clock=clock) as url, Client(url) as sqs:
        for name in ("orders", "other"):
            sqs("CreateQueue", QueueName=name)
        sqs.send("orders", "a")
        sqs.receive("orders", VisibilityTimeout=LEASE_SECONDS)
        clock.advance(LEASE_SECONDS - 10)
        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: url.broker.metrics.parked == 1, "it waits")
        _break_the_disk(monkeypatch)
        with pytest.raises(Refused):
            sqs.send("other", "x")
        clock.advance(21)
        thread.join(30)
        assert outcomes == ["told"]
        assert not url.broker.store.sessions["orders"].waiters


def test_R57_a_wait_that_ends_while_the_body_is_read_gives_nothing_back(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message that is on its way to the client stays the client's."""
    clock, pread = FakeClock(), RealDisk.pread
    begun, gate, others = threading.Event(), threading.Event(), threading.Event()

    def slow(self: RealDisk, handle: int, size: int, offset: int, *, wait: bool = True) -> bytes:
        if not wait:
            raise BlockingIOError
        begun.set()
        gate.wait(30)
        return pread(self, handle, size, offset)

    found: list[dict[str, Any]] = []
    with running_broker(store, "os", clock=clock) as url, Client(url) as sqs, Client(url) as other:
        sqs("CreateQueue", QueueName="orders")
        sqs.send("orders", "a", DelaySeconds=10)
        url.broker.store._recent.clear()  # type: ignore[attr-defined]  # it is on disk only
        monkeypatch.setattr(RealDisk, "pread", slow)
        thread = threading.Thread(
            target=lambda: found.extend(other.receive("orders", WaitTimeSeconds=20))
        )
        thread.start()
        until(lambda: url.broker.metrics.parked == 1, "it waits")
        clock.advance(10)
        assert begun.wait(30)
        for _ in range(64):  # whatever else is to be read has to wait
            url.loop.call_soon_threadsafe(url.loop.run_in_executor, None, others.wait, 30)
        clock.advance(11)
        sqs("ListQueues")  # by now the end of the wait was noticed
        gate.set()
        thread.join(30)
        others.set()
        assert [each["Body"] for each in found] == ["a"]
        assert url.broker.metrics.of("orders").unread == 0
        sqs.delete("orders", found[0])
        assert sqs.counts("orders") == (0, 0, 0)


def test_R58_a_move_task_that_can_not_be_confirmed_fails(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with running_broker(store, "fsync", clock=clock) as url, Client(url) as sqs:
        for name in ("orders", "dead"):
            sqs("CreateQueue", QueueName=name)
        policy = json.dumps({"deadLetterTargetArn": sqs.arn("dead"), "maxReceiveCount": 1})
        attributes = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
        sqs("SetQueueAttributes", QueueUrl="orders", Attributes=attributes)
        for body in "ab":
            sqs.send("orders", body)
        for _ in range(2):
            sqs.receive("orders")
        source = sqs.arn("dead")
        sqs("StartMessageMoveTask", SourceArn=source, MaxNumberOfMessagesPerSecond=1)
        until(lambda: sqs.counts("orders")[0] == 1, "the first has moved")
        _break_the_disk(monkeypatch)
        (task,) = url.broker.local.get("dead").move_tasks

        def over() -> bool:
            clock.advance(1.1)  # again: the task may only now begin its pause of a second
            return bool(task.status == "FAILED")

        until(over, "the task is over")
        assert task.failure


def test_R58_long_work_is_confirmed_when_it_is_over(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests, which are answered between its steps, take nothing from what it wrote."""
    fdatasync, gate = RealDisk.fdatasync, threading.Event()

    def slow(self: RealDisk, handle: int) -> None:
        gate.wait(30)
        fdatasync(self, handle)

    with running_broker(store, "fsync") as url, open_mailbox(f"{url}/orders", bytes) as box:
        box.send(b"x")
        broker, orders = url.broker, url.broker.store.sessions["orders"]
        ((record, _),) = orders.look("ready", 1)
        monkeypatch.setattr(RealDisk, "fdatasync", slow)

        def steps() -> Iterator[int]:
            yield orders.remove([record.key])
            broker.confirmation()  # as any other request asks for it
            yield 0

        work = asyncio.run_coroutine_threadsafe(broker.in_slices(steps()), url.loop)
        until(lambda: not orders.counts()[0], "it is deleted")
        with pytest.raises(TimeoutError):
            work.result(0.2)
        gate.set()
        assert work.result(30) == 1
