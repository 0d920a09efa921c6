"""A head that was read before is not parsed again, and everything goes on as if it were."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from pillarbox.broker.parsing import Head, Heads, Parser
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client

LINES = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"


def _request(body: object, more: str = "") -> bytes:
    data = json.dumps(body).encode()
    return f"{LINES}{more}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _send(text: str) -> bytes:
    return _request({"QueueUrl": "orders", "MessageBody": text})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = str(tmp_path_factory.mktemp("heads") / "data")
    with running_broker(data, "fsync") as url:
        yield url


@pytest.fixture
def sqs(url: RunningBroker) -> Iterator[Client]:
    with Client(url) as sqs:
        sqs("CreateQueue", QueueName="orders")
        yield sqs
        sqs("PurgeQueue", QueueUrl="orders")


@pytest.fixture
def raw(url: RunningBroker) -> Iterator[socket.socket]:
    where = urlsplit(str(url))
    with socket.create_connection((where.hostname, where.port), timeout=20) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield raw


def _answers(raw: socket.socket, count: int) -> list[int]:
    """The statuses of so many answers."""
    found = []
    with raw.makefile("rb") as reader:
        for _ in range(count):
            found.append(int(reader.readline().split()[1]))
            length = 0
            while (line := reader.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            reader.read(length)
    return found


def _known(url: RunningBroker, request: bytes) -> bool:
    return request[: request.index(b"\r\n\r\n") + 4] in url.broker.http_server.heads


Way = Callable[[socket.socket, bytes], None]


def _at_once(raw: socket.socket, data: bytes) -> None:
    raw.sendall(data)


def _in_two(raw: socket.socket, data: bytes) -> None:
    """The head comes first, and what follows when the broker has taken it."""
    end = data.index(b"\r\n\r\n") + 9
    raw.sendall(data[:end])
    raw.sendall(data[end:])


@pytest.mark.parametrize("way", [_at_once, _in_two])
def test_R35_a_known_head_is_answered_as_a_new_one(
    url: RunningBroker, sqs: Client, raw: socket.socket, way: Way
) -> None:
    url.broker.http_server.heads.clear()
    raw.sendall(_send("first"))
    assert _answers(raw, 1) == [200]
    assert _known(url, _send("first"))
    for text in ("again", "third"):
        way(raw, _send(text))
        assert _answers(raw, 1) == [200]
    assert sqs.bodies("orders") == ["first", "again", "third"]


def test_R35_known_heads_may_be_pipelined_and_refused(
    url: RunningBroker, sqs: Client, raw: socket.socket
) -> None:
    raw.sendall(_send("first"))
    assert _answers(raw, 1) == [200]
    empty = _request({"QueueUrl": "orders"})
    raw.sendall(_send("again") + empty + _send("third") + empty)
    assert _answers(raw, 4) == [200, 400, 200, 400]
    raw.sendall(_send("forth"))  # and the parser is where it should be
    assert _answers(raw, 1) == [200]
    assert sqs.bodies("orders") == ["first", "again", "third", "forth"]


def test_R59_bytes_after_a_known_head_are_no_part_of_its_body(
    url: RunningBroker, sqs: Client, raw: socket.socket
) -> None:
    raw.sendall(_send("first"))
    assert _answers(raw, 1) == [200]
    raw.sendall(_send("again") + b"GARBAGE\r\n\r\n")
    assert _answers(raw, 1) == [400]  # it does not wait for what is not confirmed yet
    assert sqs.bodies("orders") == ["first", "again"]


def test_R35_a_client_is_told_to_go_on_only_if_it_waits(sqs: Client, raw: socket.socket) -> None:
    request = _request({"QueueUrl": "orders", "MessageBody": "first"}, "Expect: 100-continue\r\n")
    raw.sendall(request)
    assert _answers(raw, 1) == [200]
    end = request.index(b"\r\n\r\n") + 4
    raw.sendall(request[:end])
    assert _answers(raw, 1) == [100]
    raw.sendall(request[end:])
    assert _answers(raw, 1) == [200]
    assert sqs.bodies("orders") == ["first", "first"]


def test_R36_what_one_turn_has_written_is_confirmed_together(
    url: RunningBroker, sqs: Client, raw: socket.socket
) -> None:
    sizes = url.broker.metrics.confirm_batch
    syncs, answers = sum(sizes.counts), sizes.total
    raw.sendall(b"".join(_send(str(number)) for number in range(9)))
    assert _answers(raw, 9) == [200] * 9
    assert sizes.total - answers == 9
    assert sum(sizes.counts) - syncs < 9
    assert sqs.bodies("orders") == [str(number) for number in range(9)]


SIGNED = "Authorization: AWS4-HMAC-SHA256 Credential=a/b\r\n"
CHUNKED = f"{LINES}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode()


@pytest.mark.parametrize(
    "data",
    [
        _request({}, SIGNED),
        _request({}, "Connection: close\r\n"),
        _request({}, f"X-Long: {'x' * 1_024}\r\n"),
        _request({}, "Expect: 100-continue\r\n"),
        _request({}) + _request({}),
        b"\r\n\r\n" + _request({}),
        CHUNKED,
        _request({})[:-1],
    ],
    ids=["signed", "last", "long", "expecting", "two", "empty line", "chunked", "incomplete"],
)
def test_R59_only_the_head_of_one_plain_request_is_kept(data: bytes) -> None:
    heads = Heads()
    Parser(heads, lambda *_: None, lambda *_: None, lambda: 1.0).feed(data)
    assert not heads


def test_R59_a_head_is_kept_as_it_was_parsed_and_not_for_ever() -> None:
    heads = Heads()
    taken: list[tuple[Head, bytes, bool]] = []
    parser = Parser(heads, lambda *_: None, lambda *each: taken.append(each), lambda: 1.0)
    data = _request({"a": 1})
    parser.feed(data)
    assert heads == {data[:-8]: taken[0][0]}
    for number in range(2_500):
        parser.feed(_request({}, f"X-Number: {number}\r\n"))
    assert len(heads) <= 1_000
