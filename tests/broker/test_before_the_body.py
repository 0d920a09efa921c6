"""R116: where there are keys, a client is judged by the head of its request, before the body."""

from __future__ import annotations

import hashlib
import json
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.exceptions
import pytest

from pillarbox.broker import Key, limits
from pillarbox.dashboard import mount
from pillarbox.mailbox.broker import wire
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.test_security import _certificate as certificate
from tests.broker.test_security import _client as signing
from tests.broker.test_security import _signed as signed
from tests.broker.test_strangers import MSGPACK, _answer, _connect, _until

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


BASIC = "Basic " + b64encode(b"AKROOT:wrong").decode()
TARGET = {"X-Amz-Target": "AmazonSQS.SendMessage"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
UNKNOWN = {
    "JSON": ("/", TARGET, 403, b'"message":"Missing Authentication Token"'),
    "query": ("/", FORM, 403, b"<Code>MissingAuthenticationToken</Code>"),
    "query, presigned by nobody": ("/?X-Amz-Signature=0", FORM, 400, b"<Code>Incomplete"),
    "private protocol": (f"{wire.PATH}/orders", MSGPACK, 401, b"Missing Authentication Token"),
    "a token of old": (
        f"{wire.PATH}/orders",
        {**MSGPACK, "Authorization": "Pillarbox abc"},
        401,
        b"no longer valid",
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
    assert guarded.broker.http_server.buffers.total_bytes == 0


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
        _until(lambda: guarded.broker.http_server.buffers.total_bytes > 0)
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
    connections = guarded.broker.http_server.connections
    before = len(connections)
    with _connect(guarded) as link:
        link.sendall(_head("/", {**TARGET, **fields}))
        assert link.recv(1, socket.MSG_PEEK)  # it is refused
        link.sendall(b"x" * LENGTH)
        assert _answer(link).startswith(b"HTTP/1.1 %d " % status)
    _until(lambda: len(connections) <= before)


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
