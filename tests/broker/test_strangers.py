"""R116: what clients send before they are known is bounded for all together, and given back."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.exceptions
import pytest

from pillarbox.broker import Config, Key, limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.dashboard import mount
from pillarbox.mailbox.broker import wire
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.server_process import Server
from tests.broker.support import Client
from tests.broker.test_security import _certificate as certificate
from tests.broker.test_security import _client as signing
from tests.broker.test_security import _signed as signed

MB = 1_000_000
BUDGET = 4 * limits.BODY_BYTES_MAX  # the least there may be
SLACK = 30 * MB  # sockets, heads, what the allocator keeps for the next request
CROWD = 24
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
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
        _until(lambda: _memory(server) < before + SLACK)


def test_R116_control_without_the_budget_the_crowd_takes_what_it_likes(tmp_path: Path) -> None:
    with _server(tmp_path, 1 << 40) as server:
        before = _memory(server)
        crowd = [_stall(server.url, STALLED) for _ in range(CROWD)]
        _until(lambda: _memory(server, "VmHWM") > before + 5 * BUDGET // 4 + SLACK)
        for each in crowd:
            each.close()
        _until(lambda: _memory(server) < before + SLACK)  # and even that is given back


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
        _until(lambda: _memory(server) < before + SLACK)


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
        buffers = url.broker.site.buffers
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
        buffers = url.broker.site.buffers
        _until(lambda: buffers.total_bytes >= 16_000)
        link.close()
        _until(lambda: buffers.total_bytes == 0)


def test_R116_a_budget_that_one_request_could_fill_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="request_buffer_bytes_max"):
        Config(request_buffer_bytes_max=BUDGET - 1)


def test_R116_whoever_loses_its_room_is_told_to_try_again() -> None:
    """The first to stall is the first to go; SDKs try a 503 again."""
    with running_broker(request_buffer_bytes_max=BUDGET) as url, ExitStack() as open_:
        crowd = [open_.enter_context(_stall(url, STALLED)) for _ in range(5)]
        assert crowd[0].recv(65_536).startswith(b"HTTP/1.1 503 ")
        assert url.broker.site.buffers.total_bytes <= BUDGET


def test_R116_a_body_that_stalls_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of it has come, and however quickly."""
    monkeypatch.setattr(limits, "BODY_STALL_SECONDS_MAX", 0.2)
    with running_broker() as url, _stall(url, STALLED) as link:
        assert link.recv(65_536).startswith(b"HTTP/1.1 408 ")


# -- before the body ---------------------------------------------------------------------------

ROOT = Key("AKROOT", "root secret")
LENGTH = 4_000_000


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    with running_broker(keys=(ROOT,)) as url:
        mount(url.broker)
        signing(url, "AKROOT", "root secret").create_queue(QueueName="orders")
        yield url


def _head(path: str, fields: dict[str, str]) -> bytes:
    named = {"Host": "localhost", "Content-Length": str(LENGTH), **fields}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()


def _answer(link: socket.socket) -> bytes:
    found = b""
    while chunk := link.recv(65_536):
        found += chunk
    return found


BASIC = "Basic " + b64encode(b"AKROOT:wrong").decode()
TARGET = {"X-Amz-Target": "AmazonSQS.SendMessage"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MSGPACK = {"Content-Type": "application/msgpack"}
UNKNOWN = {
    "JSON": ("/", TARGET, 403, b'"message":"Missing Authentication Token"'),
    "query": ("/", FORM, 403, b"<Code>MissingAuthenticationToken</Code>"),
    "query, presigned by nobody": ("/?X-Amz-Signature=0", FORM, 400, b"<Code>Incomplete"),
    "private protocol": (f"{wire.PATH}/orders", MSGPACK, 401, b"Missing Authentication Token"),
    "a token of old": (
        f"{wire.PATH}/orders",
        {**MSGPACK, "Authorization": "Pillarbox abc"},
        401,
        b"not known any more",
    ),
    "dashboard": ("/dashboard/queues/orders/purge", FORM, 401, b"WWW-Authenticate: Basic"),
    "a wrong password": (
        "/dashboard/queues/orders/purge",
        {**FORM, "Authorization": BASIC},
        401,
        b"WWW-Authenticate: Basic",
    ),
    "who waits to be told": ("/", {**TARGET, "Expect": "100-continue"}, 403, b"__type"),
}


@pytest.mark.parametrize("who", UNKNOWN)
def test_R116_without_a_key_the_answer_comes_before_the_body(
    guarded: RunningBroker, who: str
) -> None:
    path, fields, status, told = UNKNOWN[who]
    with _connect(guarded) as link:
        link.sendall(_head(path, fields))
        answer = _answer(link)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert told in answer
    assert answer.count(b"HTTP/1.1") == 1
    assert guarded.broker.site.buffers.total_bytes == 0


def _send(url: str, body: bytes, **more: str) -> dict[str, str]:
    """The fields of a signed request to send."""
    fields = signed(str(url), body, **more, **{"X-Amz-Target": "AmazonSQS.SendMessage"})
    return {**fields, "Host": urlsplit(str(url)).netloc, "Content-Length": str(len(body))}


BODY = json.dumps({"QueueUrl": "orders", "MessageBody": "x" * 500_000}).encode()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Authorization", ("AKROOT", "AKNONE")),  # a key that we don't know
        ("Authorization", ("Signature=", "Signature=0")),
        ("X-Amz-Date", ("20", "19")),
        ("X-Amz-Target", ("Send", "Receive")),
    ],
)
def test_R116_a_signature_that_covers_the_digest_is_checked_before_the_body(
    guarded: RunningBroker, name: str, wrong: tuple[str, str]
) -> None:
    fields = _send(guarded, BODY, **{"X-Amz-Content-SHA256": hashlib.sha256(BODY).hexdigest()})
    with _connect(guarded) as link:
        link.sendall(_head("/", {**fields, name: fields[name].replace(*wrong, 1)}))
        assert _answer(link).split(b" ", 2)[1] in (b"400", b"403")
    with _connect(guarded) as link:  # the control: it is awaited, and then it is good
        link.sendall(_head("/", {**fields, "Connection": "close"}))
        _until(lambda: guarded.broker.site.buffers.total_bytes > 0)
        link.sendall(BODY)
        assert _answer(link).startswith(b"HTTP/1.1 200 ")


def test_R116_a_body_that_was_not_signed_is_refused_all_the_same(guarded: RunningBroker) -> None:
    fields = _send(guarded, BODY, **{"X-Amz-Content-SHA256": hashlib.sha256(BODY).hexdigest()})
    with _connect(guarded) as link:
        link.sendall(_head("/", {**fields, "Connection": "close"}))
        link.sendall(BODY.replace(b"xx", b"xy", 1))
        assert b"SignatureDoesNotMatch" in _answer(link)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 403),  # no key
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Length": "9000000"}, 413),
        ({"X-Long": "x" * 20_000}, 431),
    ],
)
def test_R116_whoever_sends_on_can_read_why_it_was_refused(
    guarded: RunningBroker, fields: dict[str, str], status: int
) -> None:
    """Closing at once would reset the connection, and the answer with it."""
    with _connect(guarded) as link:
        link.sendall(_head("/", {**TARGET, **fields}))
        assert link.recv(1, socket.MSG_PEEK)  # it is refused
        link.sendall(b"x" * LENGTH)
        assert _answer(link).startswith(b"HTTP/1.1 %d " % status)
    _until(lambda: not guarded.broker.site.connections)


def test_R116_whoever_sends_on_for_ever_is_cut_off(
    guarded: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_SECONDS_MAX", 0.2)
    with _connect(guarded) as link:
        link.sendall(_head("/", TARGET))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            _send_for_ever(link)


def _send_for_ever(link: socket.socket) -> None:
    while True:
        link.sendall(b"x" * 65_536)


def _code(call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(botocore.exceptions.ClientError) as refused:
        call(**parameters)
    return str(refused.value.response["Error"]["Code"])


@pytest.mark.parametrize("tls", [False, True])
def test_R116_an_SDK_that_sends_its_body_first_reads_why_it_is_refused(
    tmp_path: Path, tls: bool
) -> None:
    """Closing at once would reset the connection while it sends."""
    files = certificate(tmp_path, 1) if tls else (None, None)
    settings: dict[str, Any] = {"tls_certificate": files[0], "tls_key": files[1]}
    with running_broker(keys=(ROOT,), **settings) as url:
        sqs = signing(url, "AKNONE", "wrong", **({"verify": files[0]} if tls else {}))
        for _ in range(5):
            code = _code(sqs.send_message, QueueUrl="orders", MessageBody="x" * 1_000_000)
            assert code == "InvalidClientTokenId"
