"""A consumer that hangs up before it has its answer neither loses nor burns a message."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pillarbox.broker import local_queue
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client, eventually
from tests.broker.test_security import _certificate as certificate


@pytest.fixture
def url() -> Iterator[RunningBroker]:
    with running_broker() as url:
        yield url


def _poll(url: RunningBroker, queue: str, seconds: int = 20) -> socket.socket:
    """A consumer that has asked and does not read."""
    where = urlsplit(url)
    raw = socket.create_connection((where.hostname, where.port), timeout=30)
    ask = {"QueueUrl": queue, "WaitTimeSeconds": seconds, "MaxNumberOfMessages": 10}
    raw.sendall(_request("ReceiveMessage", ask))
    return raw


def _request(action: str, ask: dict[str, Any]) -> bytes:
    body = json.dumps(ask).encode()
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.{action}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _parked(url: RunningBroker, sqs: Client, count: int) -> None:
    while url.broker.metrics.parked != count:
        sqs("ListQueues")


def test_R57_a_parked_consumer_that_is_gone_is_not_served(url: RunningBroker) -> None:
    sqs = Client(url)
    queue = sqs.create()
    gone = _poll(url, queue)
    _parked(url, sqs, 1)
    gone.close()
    _parked(url, sqs, 0)
    sqs.send(queue, "a")
    (message,) = sqs.receive(queue, AttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs.close()


def _reset_while_unread(url: RunningBroker, sqs: Client) -> str:
    """A consumer is given a message, and dies before it reads it."""
    queue = sqs.create()
    gone = _poll(url, queue)
    _parked(url, sqs, 1)
    sqs.send(queue, "a")
    _parked(url, sqs, 0)
    gone.recv(1, socket.MSG_PEEK)  # the answer has come, and stays unread
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    while len(url.broker.http_server.connections) > 1:
        sqs("ListQueues")
    return queue


def test_R57_an_answer_that_nobody_read_is_given_back_uncounted(url: RunningBroker) -> None:
    sqs = Client(url)
    queue = _reset_while_unread(url, sqs)
    (message,) = sqs.receive(queue, AttributeNames=["All"])
    assert message["Body"] == "a"
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert url.broker.metrics.of(queue.rpartition("/")[2]).unread == 1
    sqs.close()


def test_R57_control_without_giving_back_the_message_stays_hidden(
    url: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_queue, "give_back", lambda session, leases: None)
    sqs = Client(url)
    queue = _reset_while_unread(url, sqs)
    assert sqs.receive(queue) == []
    assert sqs.counts(queue) == (0, 1, 0)
    sqs.close()


def test_R57_an_answer_that_was_read_is_not_given_back(url: RunningBroker) -> None:
    sqs = Client(url)
    queue = sqs.create()
    gone = _poll(url, queue)
    _parked(url, sqs, 1)
    sqs.send(queue, "a")
    assert b'"Body":"a"' in gone.recv(65_536)
    gone.close()
    while len(url.broker.http_server.connections) > 1:
        sqs("ListQueues")
    assert sqs.receive(queue) == []
    assert sqs.counts(queue) == (0, 1, 0)
    sqs.close()


@pytest.mark.parametrize("ended_by", ["a time-out", "the stop of the broker"])
def test_R57_over_TLS_a_busy_client_whose_idle_connection_is_closed_keeps_its_messages(
    tmp_path: Path, ended_by: str
) -> None:
    chain, key = certificate(tmp_path, 1)
    trust = ssl.create_default_context(cafile=chain)
    with ExitStack() as links:
        with running_broker(tls_certificate=chain, tls_key=key) as url:
            where = urlsplit(url)
            plain = socket.create_connection((where.hostname, where.port), timeout=30)
            link = links.enter_context(trust.wrap_socket(plain, server_hostname="127.0.0.1"))
            for action, ask in (
                ("CreateQueue", {"QueueName": "orders"}),
                ("SendMessage", {"QueueUrl": "orders", "MessageBody": "a"}),
                ("ReceiveMessage", {"QueueUrl": "orders"}),
            ):
                link.sendall(_request(action, ask))
                answer = link.recv(65_536)
            assert b'"Body":"a"' in answer
            orders = url.broker.store.sessions["orders"]
            if ended_by == "a time-out":
                (connection,) = url.broker.http_server.connections
                url.loop.call_soon_threadsafe(connection.time_out)
                eventually(lambda: not url.broker.http_server.connections)
        assert orders.counts()[:3] == (0, 0, 1)


def test_R57_messages_given_back_keep_their_order_at_the_front(url: RunningBroker) -> None:
    sqs = Client(url)
    queue = sqs.create()
    for body in "abc":
        sqs.send(queue, body)
    gone = _poll(url, queue, 0)
    while sqs.counts(queue)[1] != 3:
        sqs("ListQueues")
    gone.recv(1, socket.MSG_PEEK)
    sqs.send(queue, "d")
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    while sqs.counts(queue)[1] != 0:
        sqs("ListQueues")
    assert sqs.bodies(queue) == ["a", "b", "c", "d"]
    sqs.close()


def test_R56_a_thousand_parked_polls_are_each_served_once(url: RunningBroker) -> None:
    sqs = Client(url)
    queue = sqs.create()
    polls = [_poll(url, queue) for _ in range(1_000)]
    _parked(url, sqs, 1_000)
    for number in range(0, 1_000, 10):
        entries = [{"Id": str(i), "MessageBody": f"m{number + i}."} for i in range(10)]
        sqs("SendMessageBatch", QueueUrl=queue, Entries=entries)
    _parked(url, sqs, 900)  # the first 100 took ten each: nobody waits to fill a batch
    for number in range(900):
        sqs.send(queue, f"n{number}.")
    seen: set[str] = set()
    for poll in polls:
        data = poll.recv(65_536).partition(b"\r\n\r\n")[2]
        seen |= {message["Body"] for message in json.loads(data)["Messages"]}
        poll.close()
    assert len(seen) == 1_900
    sqs.close()
