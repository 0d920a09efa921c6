"""R116: what clients send before they are known is bounded for all together, and given back."""

from __future__ import annotations

import json
import select
import socket
import ssl
import time
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pillarbox.broker import Config, limits
from pillarbox.broker.access import Access, Principal
from pillarbox.broker.config import Key
from pillarbox.broker.http import Request
from pillarbox.broker.http_parser import RequestParser
from pillarbox.broker.queue_names import QueueNames
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.broker import wire
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.server_process import Server
from tests.broker.support import Client
from tests.broker.test_security import _certificate as certificate

MB = 1_000_000
BUDGET = 4 * limits.BODY_BYTES_MAX  # the least there may be
SLACK = 30 * MB  # sockets, heads, what the allocator keeps for the next request
CROWD = 24
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
MSGPACK = {"Content-Type": "application/msgpack"}
JSON = HEAD + b"X-Amz-Target: AmazonSQS.SendMessage\r\n"


def _until(is_true: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def _memory(server: Server, field: str = "VmRSS") -> int:
    """Bytes of the process that are in memory, or were at most (VmHWM)."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1_024
    raise AssertionError(field)


def _given_back(server: Server, before: int) -> None:
    """Wait until what a crowd took is free again: at the latest with a full collection."""
    end = time.monotonic() + 90
    while (now := _memory(server)) >= before + SLACK:
        assert time.monotonic() < end, f"{before // MB} MB became {now // MB} MB for good"
        time.sleep(0.01)


def _connect(url: str) -> socket.socket:
    where = urlsplit(str(url))
    return socket.create_connection((where.hostname, where.port), timeout=20)


def _stall(url: str, data: bytes, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Send this, as far as the broker takes it."""
    link = _connect(url)
    if tls is not None:
        link = tls.wrap_socket(link, server_hostname="127.0.0.1")
    with suppress(OSError):  # others needed the room
        link.sendall(data)
    return link


def _answer(link: socket.socket) -> bytes:
    return b"".join(iter(lambda: link.recv(65_536), b""))


def _server(folder: Path, budget: int) -> Server:
    (folder / "broker.toml").write_text(f"request_buffer_bytes_max = {budget}\n")
    return Server("--data", "none", "--config", str(folder / "broker.toml"))


# -- memory ------------------------------------------------------------------------------------

STALLED = JSON + b"Content-Length: 8388000\r\n\r\n" + b"a" * 8_300_000


def test_R116_a_stalled_crowd_shares_a_budget_and_honest_clients_are_served(
    tmp_path: Path,
) -> None:
    with _server(tmp_path, BUDGET) as server, Client(server.url) as sqs:
        queue = sqs.create()
        sqs.send(queue, "x" * 1_000_000)
        sqs.bodies(queue)
        before = _memory(server)
        for _ in range(3):
            crowd = [_stall(server.url, STALLED) for _ in range(CROWD)]
            sqs.send(queue, "y" * 1_000_000)  # while they hold what they can
            for each in crowd:
                each.close()
        assert len(sqs.bodies(queue)) == 3
        assert _memory(server, "VmHWM") < before + 5 * BUDGET // 4 + SLACK
        _given_back(server, before)


def test_R116_control_without_the_budget_the_crowd_takes_what_it_likes(tmp_path: Path) -> None:
    with _server(tmp_path, 1 << 40) as server:
        before = _memory(server)
        crowd = [_stall(server.url, STALLED) for _ in range(CROWD)]
        _until(lambda: _memory(server, "VmHWM") > before + 5 * BUDGET // 4 + SLACK)
        for each in crowd:
            each.close()
        _given_back(server, before)  # even that


def test_R116_over_TLS_memory_is_given_back_too(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path, 1)
    trust = ssl.create_default_context(cafile=chain)
    flags = ("--data", "none", "--tls-certificate", chain, "--tls-key", key)
    with Server(*flags) as server:
        before = _memory(server)
        for _ in range(3):
            crowd = [_stall(server.url, STALLED, trust) for _ in range(CROWD)]
            assert _memory(server) > before + SLACK
            for each in crowd:
                each.close()
        _given_back(server, before)


def _complete(action: bytes, body: bytes) -> bytes:
    head = HEAD + b"X-Amz-Target: AmazonSQS.%b\r\nContent-Length: %d\r\n\r\n" % (action, len(body))
    return head + body


@pytest.mark.parametrize("protocol", ["JSON", "query"])
def test_R116_a_client_that_waits_or_is_idle_holds_no_body(protocol: str, tmp_path: Path) -> None:
    padding = 8 * MB
    with _server(tmp_path, BUDGET) as server, Client(server.url) as sqs, ExitStack() as open_:
        queue = sqs.create()
        idle = _complete(b"ListQueues", b"{}".ljust(padding))
        body = f'{{"QueueUrl": "{queue}", "WaitTimeSeconds": 20}}'.encode()
        poll = _complete(b"ReceiveMessage", body.ljust(padding))
        if protocol == "query":
            form = f"Action=ReceiveMessage&WaitTimeSeconds=20&QueueUrl={queue}&x=".encode()
            form = form.ljust(padding, b"x")
            poll = HEAD + b"Content-Length: %d\r\n\r\n" % len(form) + form
        before = _memory(server)
        for data in [idle, poll] * (CROWD // 2):
            open_.enter_context(_stall(server.url, data))
        parked = f"pillarbox_parked_polls {CROWD // 2:.1f}".encode()
        _until(lambda: parked in sqs.raw("GET", "/metrics")[2])
        assert _memory(server) < before + SLACK


def test_R116_a_poll_of_the_private_protocol_holds_nothing_of_its_padding() -> None:
    receive = wire.Receive(1, 30_000_000, 20_000_000)
    with running_broker() as url, Client(url) as sqs:
        sqs("CreateQueue", QueueName="orders")
        body = wire.encode(wire.Request(b"c" * 16, 1, "x" * MB, [receive]))
        _, _, data = sqs.raw("POST", f"{wire.PATH}/orders", body, MSGPACK)
        assert b"length <= 64" in data


# -- what counts -------------------------------------------------------------------------------

UNFINISHED = {
    "a head": (JSON + b"X-A: b\r\n" * 50, b"\r\n", 400),
    "a field": (JSON + b"X-A: " + b"b" * 5_000, b"\r\n\r\n", 5_000),
    "a path": (b"GET /" + b"a" * 5_000, b" HTTP/1.1\r\n\r\n", 5_000),
    "a body": (JSON + b"Content-Length: 9000\r\n\r\n" + b"a" * 8_000, b"a" * 1_000, 8_000),
    "chunks": (
        JSON + b"Transfer-Encoding: chunked\r\n\r\n" + b"2\r\nab\r\n" * 1_000,
        b"0\r\n\r\n",
        2_000,
    ),
    "a second request": (
        _complete(b"ListQueues", b"{}") + JSON + b"Content-Length: 9000\r\n\r\n" + b"a" * 8_000,
        b"a" * 1_000,
        8_000,
    ),
}


@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize("part", UNFINISHED)
def test_R116_all_that_is_unfinished_counts_until_it_ends(part: str, hangs_up: bool) -> None:
    first, rest, least = UNFINISHED[part]
    with running_broker() as url, _connect(url) as link:
        buffers = url.broker.http_server.buffers
        link.sendall(first)
        _until(lambda: buffers.total_bytes >= least)
        if hangs_up:
            link.close()
        else:
            link.sendall(rest)
        _until(lambda: buffers.total_bytes == 0)


def test_R116_over_TLS_the_copy_counts_too(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path, 1)
    trust = ssl.create_default_context(cafile=chain)
    part = JSON + b"Content-Length: 9000\r\n\r\n" + b"a" * 8_000
    with (
        running_broker(tls_certificate=chain, tls_key=key) as url,
        _stall(url, part, trust) as link,
    ):
        buffers = url.broker.http_server.buffers
        _until(lambda: buffers.total_bytes >= 16_000)
        link.close()
        _until(lambda: buffers.total_bytes == 0)


def test_R116_a_budget_that_one_request_could_fill_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="request_buffer_bytes_max"):
        Config(request_buffer_bytes_max=BUDGET - 1)


def _gone(url: RunningBroker, open_: ExitStack, count: int) -> list[bool]:
    """So many stall, one after the other; which of them were told to come again."""
    crowd = []
    for arrived in range(8_300_000, count * 8_300_000, 8_300_000):
        crowd.append(open_.enter_context(_stall(url, STALLED)))
        _until(lambda least=arrived: url.broker.http_server.buffers.total_bytes > least)
    crowd.append(open_.enter_context(_stall(url, STALLED)))  # for which there is no room
    _until(lambda: len(url.broker.http_server.connections) < count)
    found = []
    for link in crowd:
        link.settimeout(0)
        try:
            found.append(link.recv(65_536).startswith(b"HTTP/1.1 503 "))
        except ConnectionResetError:
            found.append(True)  # it was still sending
        except BlockingIOError:
            found.append(False)
    return found


def test_R116_of_slow_requests_the_one_that_held_the_most_for_the_longest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SLOW_SECONDS", 0.0)
    with running_broker(request_buffer_bytes_max=BUDGET) as url, ExitStack() as open_:
        assert _gone(url, open_, 5) == [True, True, False, False, False]
        assert url.broker.http_server.buffers.total_bytes <= BUDGET


def test_R116_of_quick_requests_the_youngest_go_so_that_the_others_can_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many clients as you like get on, if they try a 503 again, as SDKs do."""
    monkeypatch.setattr(limits, "SLOW_SECONDS", 1_000.0)  # however slow this machine is
    body = json.dumps({"QueueUrl": "orders", "MessageBody": "x" * 999_900}).encode()
    half = len(body) // 2
    head = JSON + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    count = 2 * BUDGET // len(body) + 20  # so that their halves are too much
    with running_broker(request_buffer_bytes_max=BUDGET) as url, ExitStack() as open_:
        with Client(url) as sqs:
            sqs("CreateQueue", QueueName="orders")
        herd = [open_.enter_context(_stall(url, head + body[:half])) for _ in range(count)]
        assert select.select(herd, [], [], 30)[0]  # somebody was told to come again
        for link in herd[: count // 2]:
            link.sendall(body[half:])
            assert _answer(link).startswith(b"HTTP/1.1 200 ")


def test_R116_a_body_that_stalls_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of it has come, and however quickly."""
    monkeypatch.setattr(limits, "BODY_STALL_SECONDS_MAX", 0.2)
    with running_broker() as url, _stall(url, STALLED) as link:
        assert link.recv(65_536).startswith(b"HTTP/1.1 408 ")


# -- answers -----------------------------------------------------------------------------------

PIPELINED = 1_000
TALL_BODY = "x" * 1_000_000
LOOK = b"GET /pillarbox/v1/tall/messages?max=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
RECEIVE = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    b"Content-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n%b"
)


def _receive(queue: str) -> bytes:
    asked = json.dumps({"QueueUrl": queue, "VisibilityTimeout": 0}).encode()
    return RECEIVE % (len(asked), asked)


@pytest.mark.parametrize("how", ["look", "receive"])
def test_R116_answers_that_nobody_reads_are_not_made(how: str) -> None:
    """A thousand requests at once for a megabyte each, by a client that reads nothing."""
    with Server("--data", "none") as server, Client(server.url) as sqs:
        queue = sqs("CreateQueue", QueueName="tall")["QueueUrl"]
        sqs.send(queue, TALL_BODY)
        before = _memory(server)
        asked = LOOK if how == "look" else _receive(queue)
        with _connect(server.url) as link:
            link.sendall(asked * PIPELINED)
            for _ in range(20):  # others are served meanwhile
                assert sqs.counts(queue) is not None
            _until(lambda: _is_waiting(link))
            assert _memory(server, "VmHWM") < before + limits.PIPELINED_MAX * 3 * MB + SLACK


def _is_waiting(link: socket.socket) -> bool:
    """Whether the first answer is there, as much of it as fits into the socket."""
    return bool(select.select([link], [], [], 0)[0])


def test_R116_a_client_that_pipelines_gets_every_answer_in_order() -> None:
    with Server("--data", "none") as server, Client(server.url) as sqs:
        queue = sqs("CreateQueue", QueueName="tall")["QueueUrl"]
        sqs.send(queue, TALL_BODY[:300_000])
        with _connect(server.url) as link:
            link.sendall(
                LOOK * 200 + b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            data = _answer(link)
        assert data.count(b'"Messages"') == 200
        assert data.count(b"HTTP/1.1 200 OK") == 201
        assert data.rfind(b'"Messages"') < data.rfind(b"HTTP/1.1 200 OK")


# -- what is remembered of requests ----------------------------------------------------------


def test_R116_long_queue_urls_are_not_remembered() -> None:
    with running_broker() as url, Client(url) as sqs:
        sqs("CreateQueue", QueueName="orders")
        tracemalloc.start()
        try:
            for number in range(60):  # the host of a queue's URL does not matter
                host = f"{number}{'h' * MB}"
                sqs("GetQueueAttributes", QueueUrl=f"http://{host}/000000000000/orders")
            assert tracemalloc.get_traced_memory()[0] < 20 * MB
        finally:
            tracemalloc.stop()


def test_R116_long_queue_names_are_not_remembered_for_a_key() -> None:
    sender = Principal(Key("k", "s", queues=("a*",), actions=("send",)), "000000000000")
    tracemalloc.start()
    try:
        for number in range(60):
            assert sender.may("SendMessage", f"a{number}{'x' * MB}")
            assert not sender.may("SendMessage", f"b{number}{'x' * MB}")
        assert tracemalloc.get_traced_memory()[0] < 20 * MB
    finally:
        tracemalloc.stop()


def test_R116_long_signatures_of_strangers_are_not_remembered() -> None:
    access = Access(Config(keys=(Key("k", "s"),)))
    tracemalloc.start()
    try:
        for number in range(200):
            fields = ";".join(f"{number:x}-{each:x}" for each in range(2_500))[:16_000]
            scope = "Credential=x/20260101/us-east-1/sqs/aws4_request"
            shown = f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host;{fields}, Signature=0"
            assert not access.shows_key(Request("POST", "/", headers={"authorization": shown}))
        assert tracemalloc.get_traced_memory()[0] < 5 * MB
    finally:
        tracemalloc.stop()


def test_R116_regions_that_are_none_are_not_remembered() -> None:
    names = QueueNames(Config())
    tracemalloc.start()
    try:
        for number in range(6_000):
            assert names.namespace(f"{number}{'R' * 16_000}", "000000000000") == ""
        assert tracemalloc.get_traced_memory()[0] < 20 * MB
    finally:
        tracemalloc.stop()


def test_R116_long_names_of_fields_are_not_remembered() -> None:
    parser = RequestParser("", False, lambda _: None, lambda *_: None, time.monotonic)
    tracemalloc.start()
    try:
        for number in range(900):
            field = b"%08d-%b: a\r\n" % (number, b"X" * 15_000)
            parser.feed(b"GET / HTTP/1.1\r\n%b\r\n" % field)
        assert tracemalloc.get_traced_memory()[0] < 5 * MB
    finally:
        tracemalloc.stop()
