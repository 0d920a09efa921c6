"""R39: what a queue holds can be looked at by a plain HTTP GET, and nothing happens to it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.broker import Key
from pillarbox.core.queue import Record
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client, World, text


def look(
    sqs: Client, queue: str, query: str = "", **headers: str
) -> tuple[int, list[dict[str, Any]]]:
    name = queue.rpartition("/")[2]
    status, told, data = sqs.raw("GET", f"/pillarbox/v1/{name}/messages{query}", headers=headers)
    assert told["content-type"] == "application/json"
    return status, json.loads(data).get("Messages", [])


def test_R39_messages_are_seen_as_they_would_be_received(world: World) -> None:
    sqs = world.sqs
    queue = sqs.create()
    sent = [sqs.send(queue, body, MessageAttributes={"n": text("7", "Number")}) for body in "ab"]
    for _ in range(2):  # looking changes nothing
        status, found = look(sqs, queue)
        assert status == 200
        assert [each["MessageId"] for each in found] == [each["MessageId"] for each in sent]
        assert [each["Body"] for each in found] == ["a", "b"]
        assert found[0]["MD5OfBody"] == sent[0]["MD5OfMessageBody"]
        assert found[0]["MessageAttributes"] == {"n": text("7", "Number")}
        assert found[0]["Attributes"]["ApproximateReceiveCount"] == "0"
        assert "ReceiptHandle" not in found[0]
    assert sqs.counts(queue) == (2, 0, 0)
    (message,) = sqs.receive(queue, 1, AttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["SentTimestamp"] == found[0]["Attributes"]["SentTimestamp"]


def test_R39_each_state_can_be_looked_at(sqs: Client) -> None:
    queue = sqs.create()
    for body, delay in (("held", 0), ("next", 0), ("last", 0), ("later", 100)):
        sqs.send(queue, body, DelaySeconds=delay)
    sqs.receive(queue, 1)
    seen = {
        query: [each["Body"] for each in look(sqs, queue, query)[1]]
        for query in ("?state=ready", "?state=ready&max=1", "?state=scheduled", "?state=in_flight")
    }
    assert list(seen.values()) == [["next", "last"], ["next"], ["later"], ["held"]]


def test_R39_what_mailboxes_sent_is_seen_in_words_of_SQS(broker: RunningBroker) -> None:
    with open_mailbox(f"{broker}/raw", bytes) as box, Client(broker) as sqs:
        box.send(b"\xff", priority=3, group="g")
        _, (seen,) = look(sqs, "raw")
    assert seen["Body"] == base64.b64encode(b"\xff").decode()
    assert seen["Attributes"]["MessageGroupId"] == "g"
    assert seen["MessageAttributes"] == {
        "Pillarbox.Encoding": text("base64"),
        "Pillarbox.Priority": text("3", "Number"),
    }


@pytest.mark.parametrize("query", ["?state=dead", "?max=0", "?max=1001", "?max=x", "?max=%C2%B2"])
def test_R39_what_can_t_be_looked_at_is_refused(sqs: Client, query: str) -> None:
    assert look(sqs, sqs.create(), query) == (400, [])


def test_R39_a_queue_that_is_not_there_can_t_be_looked_at(sqs: Client) -> None:
    assert look(sqs, "nowhere") == (400, [])
    assert sqs.raw("GET", "/pillarbox/v1/nowhere")[0] == 404


def test_R59_a_key_that_may_not_receive_may_not_look() -> None:
    keys = (Key("ALL", "s"), Key("SEND", "s", actions=("send",)), Key("NO", "s", queues=("x",)))
    keys += (Key("Zoë", "ü"),)
    with running_broker(keys=keys) as url, Client(url) as sqs:
        with open_mailbox(f"http://ALL:s@{url.removeprefix('http://')}/orders", str) as box:
            box.send("secret")

        def status(login: str) -> tuple[int, int]:
            basic = f"Basic {base64.b64encode(login.encode()).decode()}"
            code, found = look(sqs, "orders", Authorization=basic)
            return code, len(found)

        assert look(sqs, "orders") == (403, [])
        assert status("ALL:s") == (200, 1)
        assert status("Zoë:ü") == (200, 1)
        assert [status(f"{key}:s") for key in ("SEND", "NO")] == [(403, 0)] * 2
        assert status("ALL:wrong")[0] == 400  # neither a password nor a signature


def test_R116_no_more_bodies_are_read_from_disk_than_an_answer_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, read = 100_000, list[int]()

    def body(store: DurableStore, record: Record, *, wait: bool = True) -> bytes | None:
        read.append(record.key)
        return read_body(store, record, wait=wait)

    read_body = DurableStore.body
    monkeypatch.setattr(DurableStore, "body", body)
    with running_broker(data=str(tmp_path)) as broker, Client(broker) as sqs:
        box = open_mailbox(f"{broker}/large", bytes)
        for _ in range(8):
            box.send_many([b"x" * size] * 50)
        read.clear()
        assert len(look(sqs, "large", "?max=1000")[1]) == (1 << 20) // size
        assert len(read) == (1 << 20) // size + 1
        read.clear()
        fit = wire.ANSWER_BYTES_MAX // size
        assert len(box.peek(400)) == fit
        assert len(read) == fit + 1
        read.clear()
        assert len(box.receive(max_messages=100)) == 100
        assert len(box.receive(max_messages=300)) == fit
        assert len(read) <= 100 + fit + 1
