"""Requests from bytes, however they are cut; and nothing is accepted that httptools refuses."""

from __future__ import annotations

import json
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urlsplit

import httptools
import pytest

from pillarbox.broker import limits
from pillarbox.broker.http import Request, Response, StreamingResponse
from pillarbox.broker.http_parser import RequestParser
from pillarbox.broker.limits import LimitError
from pillarbox.broker.tls import SlicedWrites
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client, eventually
from tests.broker.test_security import _certificate as certificate

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


def test_R35_a_head_request_for_a_stream_gets_the_head_alone(
    url: RunningBroker, raw: socket.socket
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a chunk"

    url.broker.routes.add("/stream", lambda _: StreamingResponse(chunks=chunks()))
    raw.sendall(b"HEAD /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    with raw.makefile("rb") as reader:
        answer = reader.read()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"Transfer-Encoding: chunked\r\n\r\n")


def test_R116_a_client_that_reads_slowly_but_steadily_gets_all_of_a_response(
    url: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITE_SECONDS_MAX", 2.0)
    large, got, where = b"x" * (30 << 20), 0, urlsplit(str(url))
    url.broker.routes.add("/large", lambda _: Response(200, large))
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        link.connect((where.hostname, where.port))
        link.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while data := link.recv(1 << 20, socket.MSG_WAITALL):
            got += len(data)
            time.sleep(0.1)
    assert got > len(large)


@pytest.mark.parametrize("then", ["keep-alive", "close"])
def test_R116_over_TLS_too_a_slow_client_gets_all_of_a_response(tmp_path: Path, then: str) -> None:
    chain, key = certificate(tmp_path, 1)
    trust = ssl.create_default_context(cafile=chain)
    large, got = b"x" * (24 << 20), 0
    with running_broker(tls_certificate=chain, tls_key=key, idle_seconds=0.5) as url:
        url.broker.routes.add("/large", lambda _: Response(200, large))
        where = urlsplit(str(url))
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            plain.connect((where.hostname, where.port))
            with trust.wrap_socket(plain, server_hostname="127.0.0.1") as link:
                head = f"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: {then}\r\n\r\n"
                link.sendall(head.encode())
                while got < len(large) and (data := link.recv(1 << 20)):
                    got += len(data)
                    time.sleep(0.003)
    assert got >= len(large)


def test_R116_over_TLS_nothing_is_closed_before_the_last_slice_is_on_its_way() -> None:
    connection, transport = Mock(), Mock()
    sliced = SlicedWrites(connection)
    sliced.connection_made(transport)
    transport.write.side_effect = lambda _: sliced.pause_writing()
    sliced.write(b"the last slice")
    sliced.close()
    transport.close.assert_not_called()
    sliced.resume_writing()
    transport.close.assert_called_once()


def test_R116_over_TLS_too_a_client_that_does_not_read_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITE_SECONDS_MAX", 0.5)
    chain, key = certificate(tmp_path, 1)
    trust = ssl.create_default_context(cafile=chain)
    with running_broker(tls_certificate=chain, tls_key=key) as url:
        url.broker.routes.add("/large", lambda _: Response(200, b"x" * (30 << 20)))
        where = urlsplit(str(url))
        with (
            socket.create_connection((where.hostname, where.port)) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as link,
        ):
            link.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            eventually(lambda: url.broker.http_server.requests == 1)
            eventually(lambda: not url.broker.http_server.connections)


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


Way = Callable[[socket.socket, bytes], None]


def _at_once(raw: socket.socket, data: bytes) -> None:
    raw.sendall(data)


def _in_two(raw: socket.socket, data: bytes) -> None:
    """The head comes first, and what follows when the broker has taken it."""
    end = data.index(b"\r\n\r\n") + 9
    raw.sendall(data[:end])
    raw.sendall(data[end:])


@pytest.mark.parametrize("way", [_at_once, _in_two])
def test_R35_requests_of_one_connection_are_answered_in_order(
    sqs: Client, raw: socket.socket, way: Way
) -> None:
    for text in ("first", "again", "third"):
        way(raw, _send(text))
        assert _answers(raw, 1) == [200]
    assert sqs.bodies("orders") == ["first", "again", "third"]


def test_R35_requests_may_be_pipelined_and_refused(sqs: Client, raw: socket.socket) -> None:
    empty = _request({"QueueUrl": "orders"})
    raw.sendall(_send("again") + empty + _send("third") + empty)
    assert _answers(raw, 4) == [200, 400, 200, 400]
    raw.sendall(_send("forth"))  # and the parser is where it should be
    assert _answers(raw, 1) == [200]
    assert sqs.bodies("orders") == ["again", "third", "forth"]


def test_R59_bytes_after_a_request_are_no_part_of_its_body(sqs: Client, raw: socket.socket) -> None:
    raw.sendall(_send("first") + b"GARBAGE\r\n\r\n")
    assert _answers(raw, 1) == [400]  # it does not wait for what is not confirmed yet
    assert sqs.bodies("orders") == ["first"]


def test_R59_a_length_with_leading_zeros_is_read_to_its_end(
    sqs: Client, raw: socket.socket
) -> None:
    padded = _send("first").replace(b"Content-Length: ", b"Content-Length: " + b"0" * 12)
    raw.sendall(padded + _send("second"))
    assert _answers(raw, 2) == [200, 200]
    assert sqs.bodies("orders") == ["first", "second"]


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


# -- the parser alone --------------------------------------------------------------------------

Parsed = list[tuple[str, str, str, dict[str, str], bytes, bool]]
CHUNKED = f"{LINES}Transfer-Encoding: chunked\r\n\r\n".encode()
SAMPLES = {
    "plain": _send("first"),
    "two": _send("first") + _send("second"),
    "blank lines before": b"\r\n\r\n" + _send("first") + b"\r\n" + _send("second"),
    "no body": b"GET /a/b?c=d&e=%20f HTTP/1.1\r\nHost: a\r\n\r\n",
    "chunks": CHUNKED + b"2\r\n{}\r\n1;a=b\r\n \r\n0\r\n\r\n" + _send("second"),
    "trailers": CHUNKED + b"2\r\n{}\r\n0\r\nX-A: b\r\n\r\n" + _send("second"),
    "a field twice": b"GET / HTTP/1.1\r\nX-A: b\r\nx-a:  c \t\r\n\r\n",
    "the old version": b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
    "the last": b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
    "absolute": b"GET http://here:1/a?b HTTP/1.1\r\nHost: here:1\r\n\r\n",
}


def _parse(parts: list[bytes]) -> tuple[Parsed, bool]:
    """What our parser makes of this, and whether it refused the end of it."""
    found: Parsed = []

    def taken(r: Request, keep: bool) -> None:
        found.append((r.method, r.path, r.query, dict(r.headers), r.body, keep))

    parser = RequestParser("", False, lambda _: None, taken, lambda: 1.0)
    try:
        for part in parts:
            parser.feed(part)
    except LimitError:
        return found, True
    return found, False


class _Oracle:
    """What httptools makes of it."""

    def __init__(self) -> None:
        self.found: Parsed = []
        self.parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        self._url, self._body, self._in_body = b"", b"", False
        self._headers: dict[str, str] = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
            self._headers[key] = f"{self._headers[key]},{text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        url = httptools.parse_url(self._url)
        path, query = (url.path or b"/").decode(), (url.query or b"").decode()
        keep = bool(self.parser.should_keep_alive())
        method = self.parser.get_method().decode()
        self.found.append((method, path, query, self._headers, self._body, keep))


def _oracle(data: bytes) -> tuple[Parsed, bool]:
    oracle = _Oracle()
    try:
        oracle.parser.feed_data(data)
    except httptools.HttpParserError:
        return oracle.found, True
    return oracle.found, False


@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES)
def test_R59_requests_are_the_same_wherever_they_are_cut(data: bytes) -> None:
    whole = _parse([data])
    assert whole == _oracle(data)
    assert not whole[1]
    for at in range(len(data)):
        assert _parse([data[:at], data[at:]]) == whole
    assert _parse([data[at : at + 1] for at in range(len(data))]) == whole


def test_R59_nothing_is_accepted_that_httptools_refuses_or_reads_otherwise() -> None:
    """Random changes to good requests: whatever we take for a request, it takes for the same."""
    chance = random.Random(59)
    pieces = [b"\r\n", b"\n", b"\r", b" ", b":", b"\0", b"\t", b"Content-Length: 3\r\n", b"0", b";"]
    samples = [each for name, each in SAMPLES.items() if name != "absolute"]  # a host may be bad
    accepted = 0
    for _ in range(20_000):
        data = bytearray(chance.choice(samples))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            if chance.random() < 0.5:
                data[at] = chance.randrange(256)
            else:
                data[at:at] = chance.choice(pieces)
        ours, refused = _parse([bytes(data)])
        theirs, _ = _oracle(bytes(data))
        assert ours == theirs[: len(ours)], repr(bytes(data))
        accepted += len(ours) > 0 and not refused
    assert accepted > 1_000  # or the test would show nothing
