"""Hostile clients get a 4xx or a closed socket, never a 500, and change nothing.

The deadlines are real ones made short, so that the tests need not wait for minutes.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from pillarbox.broker import limits
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client

JSON = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = str(tmp_path_factory.mktemp("hostile") / "data")
    with running_broker(data, "os", idle_seconds=1.0) as url, Client(url) as sqs:
        sqs("CreateQueue", QueueName="orders")
        yield url


@pytest.fixture(autouse=True)
def unharmed(url: RunningBroker) -> Iterator[None]:
    """Whatever happened: nothing was written to the log, and good clients are served."""
    before = url.broker.store.log.next_index  # type: ignore[attr-defined]
    yield
    assert url.broker.store.log.next_index == before  # type: ignore[attr-defined]
    with Client(url) as sqs:
        assert sqs.counts("orders") == (0, 0, 0)


def _connect(url: str) -> socket.socket:
    where = urlsplit(str(url))
    return socket.create_connection((where.hostname, where.port), timeout=20)


def _answer(url: str, data: bytes) -> bytes:
    """What comes back until the broker closes."""
    with _connect(url) as raw:
        try:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was closed before all was sent
        return _rest(raw)


def _rest(raw: socket.socket) -> bytes:
    found = b""
    try:
        while chunk := raw.recv(65_536):
            found += chunk
    except ConnectionResetError:
        pass
    return found


def _post(body: bytes, head: bytes = JSON) -> bytes:
    return head + b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)


def _is_refused(answer: bytes) -> bool:
    """4xx with a code of SQS's kind, or nothing at all."""
    if not answer:
        return True
    status = answer.split(b" ", 2)[1]
    told = (b"__type", b"<Code>", b"<UnknownOperationException/>")
    return status.startswith(b"4") and any(each in answer for each in told)


FORM = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
SMUGGLED = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n\r\n"

REQUESTS = {
    "both lengths": JSON
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "both lengths, the other way": JSON
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "two lengths": JSON + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "the same length twice": JSON + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
    "a signed length": JSON + b"Content-Length: +4\r\n\r\nabcd",
    "a negative length": JSON + b"Content-Length: -4\r\n\r\nabcd",
    "a hexadecimal length": JSON + b"Content-Length: 0x4\r\n\r\nabcd",
    "a list of lengths": JSON + b"Content-Length: 4, 4\r\n\r\nabcd",
    "a length beyond any": JSON + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "a length beyond ours": JSON + b"Content-Length: 100000000\r\n\r\n",
    "an unknown transfer coding": JSON + b"Transfer-Encoding: gzip\r\n\r\nabcd",
    "a hidden transfer coding": JSON + b"Transfer-Encoding: xchunked\r\n\r\nabcd",
    "chunked, and then not": JSON + b"Transfer-Encoding: chunked, identity\r\n\r\nabcd",
    "a blank before the colon": JSON + b"Content-Length : 4\r\n\r\nabcd",
    "a folded field": JSON + b"X-A: b\r\n c\r\nContent-Length: 4\r\n\r\nabcd",
    "lines that end in LF": JSON.replace(b"\r\n", b"\n") + b"\n",
    "a field with NUL": JSON + b"X-A: b\0c\r\n\r\n",
    "two hosts": JSON + b"Host: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}",
    "a chunk of no size": JSON + b"Transfer-Encoding: chunked\r\n\r\n\r\nabc",
    "a chunk beyond any size": JSON + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc",
    "a chunk longer than told": JSON
    + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "another version": b"POST / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a method beyond HTTP": b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "2 MB of one field": JSON + b"X-A: " + b"b" * 2_000_000 + b"\r\n\r\n",
    "2 MB of fields": JSON + b"X-A: bcdefgh\r\n" * 150_000 + b"\r\n",
    "17 kB of path": b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "101 fields": JSON + b"".join(b"X-%d: y\r\n" % i for i in range(101)) + b"\r\n",
    "malformed JSON": _post(b'{"QueueUrl": "orders", "MessageBody": '),
    "JSON that is a list": _post(b"[]"),
    "JSON that is null": _post(b"null"),
    "JSON 100,000 deep": _post(b"[" * 100_000),
    "JSON 100,000 deep in a field": _post(b'{"QueueUrl":"orders","X":' + b'{"a":' * 100_000),
    "a body that is a number": _post(b'{"QueueUrl": "orders", "MessageBody": 7}'),
    "a delay of 1e400": _post(b'{"QueueUrl": "orders", "MessageBody": "a", "DelaySeconds": 1e400}'),
    "a delay of 10,000 digits": _post(
        b'{"QueueUrl": "orders", "MessageBody": "a", "DelaySeconds": ' + b"9" * 10_000 + b"}"
    ),
    "a delay beyond 64 bits": _post(
        b'{"QueueUrl": "orders", "MessageBody": "a", "DelaySeconds": 99999999999999999999}'
    ),
    "NaN": _post(b'{"QueueUrl": "orders", "MessageBody": "a", "DelaySeconds": NaN}'),
    "a boolean for a number": _post(
        b'{"QueueUrl": "orders", "MessageBody": "a", "DelaySeconds": true}'
    ),
    "bad UTF-8": _post(b'{"QueueUrl": "orders", "MessageBody": "\xff\xfe"}'),
    "overlong UTF-8": _post(b'{"QueueUrl": "orders", "MessageBody": "\xc0\xaf"}'),
    "half a surrogate pair": _post(b'{"QueueUrl": "orders", "MessageBody": "\\ud800"}'),
    "a surrogate in UTF-8": _post(b'{"QueueUrl": "orders", "MessageBody": "\xed\xa0\x80"}'),
    "base64 that is none": _post(
        b'{"QueueUrl":"orders","MessageBody":"a","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"%"}}}'
    ),
    "a queue URL that is a path": _post(
        b'{"QueueUrl": "/../../../etc/passwd", "MessageBody": "a"}'
    ),
    "a form with bad UTF-8": _post(b"Action=SendMessage&QueueUrl=orders&MessageBody=%ff", FORM),
    "a form of raw bytes": _post(b"Action=SendMessage&QueueUrl=orders&MessageBody=\xff", FORM),
    "a form of 100,000 fields": _post(b"Action=ListQueues" + b"&a=b" * 100_000, FORM),
    "a form 1,000 deep": _post(b"Action=ListQueues&" + b"a." * 1_000 + b"=b", FORM),
    "a form that contradicts itself": _post(b"Action=SendMessage&A=1&A.1=2&QueueUrl=orders", FORM),
    "a form with lists that are not numbered": _post(
        b"Action=SendMessageBatch&QueueUrl=orders&SendMessageBatchRequestEntry.x.Id=a",
        b"POST / HTTP/1.1\r\nHost: localhost\r\n",
    ),
    "XML for a form": _post(b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", FORM),
    "an action that is markup": _post(b"Action=%3Cscript%3E", FORM),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_R59_a_hostile_request_is_refused(url: RunningBroker, request_: bytes) -> None:
    answer = _answer(url, request_)
    assert _is_refused(answer), answer[:500]
    assert answer.count(b"HTTP/1.1") <= 1  # nothing that was smuggled is answered


def test_R59_control_the_same_request_without_the_fault_is_accepted(url: RunningBroker) -> None:
    body = b'{"QueueUrl": "orders", "AttributeNames": ["QueueArn"]}'
    head = JSON.replace(b"SendMessage", b"GetQueueAttributes")
    assert _answer(url, _post(body, head)).startswith(b"HTTP/1.1 200 OK")
    fields = b"".join(b"X-%d: y\r\n" % i for i in range(90))
    assert _answer(url, _post(body, head + fields)).startswith(b"HTTP/1.1 200 OK")


def test_R59_every_mutated_byte_of_a_request_is_survived(url: RunningBroker) -> None:
    body = b'{"QueueUrl": "orders", "AttributeNames": ["QueueArn"]}'
    whole = _post(body, JSON.replace(b"SendMessage", b"GetQueueAttributes"))
    for at in range(len(whole)):
        for value in (whole[at] ^ 0x01, whole[at] ^ 0x80, 0):
            answer = _answer(url, whole[:at] + bytes([value]) + whole[at + 1 :])
            assert not answer.startswith(b"HTTP/1.1 5"), (at, value, answer)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_SECONDS_MAX", 0.2)
    monkeypatch.setattr(limits, "BODY_SECONDS_GRACE", 0.2)


def _drip(url: str, first: bytes, drops: bytes) -> tuple[bytes, float]:
    """Send a byte now and then until the broker has had enough; how long that took."""
    began = time.monotonic()
    with _connect(url) as raw:
        raw.sendall(first)
        raw.settimeout(0.05)
        found = b""
        for drop in drops:
            try:
                raw.sendall(bytes([drop]))
                found += raw.recv(65_536)
                break
            except TimeoutError:
                continue
            except OSError:
                break
        return found, time.monotonic() - began


def test_R59_a_head_that_drips_in_is_cut_off(url: RunningBroker, impatient: None) -> None:
    answer, seconds = _drip(url, b"POST / HTTP/1.1\r\nX-A: ", b"a" * 200)
    assert answer.startswith(b"HTTP/1.1 408")
    assert seconds < 5


def test_R59_a_body_that_drips_in_is_cut_off(url: RunningBroker, impatient: None) -> None:
    answer, seconds = _drip(url, JSON + b"Content-Length: 1000\r\n\r\n", b"a" * 200)
    assert answer.startswith(b"HTTP/1.1 408")
    assert seconds < 5


def test_R59_control_a_patient_broker_lets_it_drip(url: RunningBroker) -> None:
    answer, _ = _drip(url, b"POST / HTTP/1.1\r\nX-A: ", b"a" * 20)
    assert answer == b""


def test_R59_a_connection_that_says_nothing_is_closed(url: RunningBroker) -> None:
    with _connect(url) as raw:
        assert raw.recv(1) == b""


def test_R59_whoever_does_not_read_is_dropped(
    url: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITE_SECONDS_MAX", 0.2)
    ask = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000
    with _connect(url) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            _send_for_ever(raw, ask)


def _send_for_ever(raw: socket.socket, data: bytes) -> None:
    while True:
        raw.sendall(data)


def test_R59_more_connections_than_allowed_are_told_so() -> None:
    with running_broker(connections_max=3) as url:
        kept = [_connect(url) for _ in range(3)]
        while len(url.broker.http_server.connections) < 3:
            time.sleep(0)
        assert _answer(url, b"").startswith(b"HTTP/1.1 503")
        for each in kept:
            each.close()
        while url.broker.http_server.connections:
            time.sleep(0)
        with Client(url) as sqs:
            sqs("ListQueues")


def test_R59_a_thousand_dead_sockets_do_not_keep_good_clients_from_being_served(
    url: RunningBroker,
) -> None:
    dead = [_connect(url) for _ in range(1_000)]
    for number, raw in enumerate(dead):
        raw.sendall([b"POST", JSON, JSON + b"Content-Length: 9\r\n\r\n{"][number % 3])
    answers: list[int] = []

    def good() -> None:
        with Client(url) as sqs:
            for _ in range(50):
                answers.append(sqs.counts("orders")[0])

    threads = [threading.Thread(target=good) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [0] * 200
    for raw in dead:
        raw.close()


@pytest.mark.soak
def test_R59_good_clients_p99_at_most_doubles_under_attack(tmp_path: object) -> None:
    """In soak, for it measures."""

    def p99(url: RunningBroker) -> float:
        times = []
        with Client(url) as sqs:
            for _ in range(3_000):
                began = time.perf_counter()
                sqs.counts("orders")
                times.append(time.perf_counter() - began)
        return sorted(times)[int(len(times) * 0.99)]

    with running_broker(f"{tmp_path}/data", "os") as url:
        with Client(url) as sqs:
            sqs("CreateQueue", QueueName="orders")
        alone = p99(url)
        over = threading.Event()

        def attack() -> None:
            while not over.is_set():
                for each in list(REQUESTS.values())[:25]:
                    _answer(url, each)
                    over.wait(0.01)

        dead = [_connect(url) for _ in range(1_000)]
        attacker = threading.Thread(target=attack)
        attacker.start()
        attacked = p99(url)
        over.set()
        attacker.join()
        for raw in dead:
            raw.close()
    assert attacked <= 2 * alone + 0.002, json.dumps({"alone": alone, "attacked": attacked})
