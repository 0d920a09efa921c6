"""A paused queue: sends go on, receives wait, and it stays paused until someone resumes it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import boto3
import pytest

from pillarbox import InMemoryMailbox, open_mailbox
from pillarbox.core import decide
from pillarbox.core.queue import Settings
from pillarbox.mailbox.broker.admin import list_queues, pause_queue
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.store import Store
from pillarbox.testing.broker import running_broker
from tests.model.test_controls import code_with


def opened(kind: str, path: Path) -> tuple[Store, Any]:
    """A store, and its mailbox `jobs`."""
    if kind == "memory":
        store = Store()
        return store, InMemoryMailbox("jobs", str, store=store)
    box: DurableMailbox[str] = DurableMailbox("jobs", str, path=path)
    return box._session.store, box


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_R59_a_paused_mailbox_delivers_nothing_until_it_is_resumed(
    kind: str, tmp_path: Path
) -> None:
    store, box = opened(kind, tmp_path)
    box.send("before")
    session = store.sessions["jobs"]
    store.pause(session, paused=True)
    box.send("a")

    assert box.receive() == []
    assert box.receive(max_messages=10, visibility_timeout=60) == []
    assert (box.stats().ready, [m.body for m in box.peek()]) == (2, ["before", "a"])

    store.pause(session, paused=False)
    store.pause(session, paused=False)
    assert [m.body for m in box.receive(max_messages=10)] == ["before", "a"]
    box.close()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_R59_control_without_its_rule_a_paused_mailbox_delivers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = code_with(decide.receive, "queue.settings.paused", "False")
    monkeypatch.setattr(decide.receive, "__code__", broken)
    store, box = opened(kind, tmp_path)
    store.pause(store.sessions["jobs"], paused=True)
    box.send("a")

    assert [m.body for m in box.receive()] == ["a"]
    box.close()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_R59_a_receive_that_waits_is_served_when_the_queue_is_resumed(
    kind: str, tmp_path: Path
) -> None:
    store, box = opened(kind, tmp_path)
    session = store.sessions["jobs"]
    store.pause(session, paused=True)
    got: list[str] = []
    parked = threading.Thread(
        target=lambda: got.extend(m.body for m in box.receive(wait_time_seconds=20))
    )
    parked.start()
    while not session.waiters:
        pass
    box.send("a")
    assert list(session.waiters)  # the message did not wake it

    store.pause(session, paused=False)

    parked.join(10)
    assert got == ["a"]
    box.close()


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_R59_a_pause_survives_a_restart(tmp_path: Path, closed: bool) -> None:
    store = DurableStore(str(tmp_path))
    session = store.session("jobs", Settings())
    session.send([b"a"])
    store.pause(session, paused=True)
    session.send([b"b"])  # confirmed, and with it what was written before
    if closed:
        store.close()
    else:  # as a kill leaves it: no snapshot
        store.compactor.stop()
        store.log.close()

    again = DurableStore(str(tmp_path))

    kept = again.sessions["jobs"]
    box = LocalMailbox(kept, bytes)
    assert kept.queue.settings.paused
    assert box.receive() == []
    again.pause(kept, paused=False)
    assert [m.body for m in box.receive(max_messages=10)] == [b"a", b"b"]
    again.close()


@pytest.mark.parametrize("data", [False, True], ids=["in memory", "on disk"])
def test_R59_a_broker_pauses_and_resumes_a_queue(tmp_path: Path, data: bool) -> None:
    with running_broker(str(tmp_path) if data else None) as url:
        box = open_mailbox(f"{url}/jobs", str)
        pause_queue(f"{url}/jobs", paused=True)
        box.send("a")
        assert box.receive() == []
        assert {line.name: line.paused for line in list_queues(str(url))}["jobs"]

        pause_queue(f"{url}/jobs", paused=False)

        assert [m.body for m in box.receive()] == ["a"]
        box.close()


@pytest.mark.parametrize("name", ["jobs", "jobs.fifo"])
def test_R59_an_sqs_client_gets_nothing_from_a_paused_queue(name: str) -> None:
    with running_broker() as url:
        client = boto3.client(
            "sqs", endpoint_url=str(url), region_name="us-east-1",
            aws_access_key_id="x", aws_secret_access_key="x",
        )  # fmt: skip
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        extra = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
        queue = client.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]
        pause_queue(f"{url}/{name}", paused=True)
        client.send_message(QueueUrl=queue, MessageBody="a", **extra)

        for wait in (0, 1):
            assert "Messages" not in client.receive_message(QueueUrl=queue, WaitTimeSeconds=wait)
        pause_queue(f"{url}/{name}", paused=False)

        (message,) = client.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
        assert message["Body"] == "a"
