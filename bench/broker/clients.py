"""What a Python user gets from one thread: `BrokerMailbox` beside boto3, on the same server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

import boto3

from bench.broker.load import BODY, QUEUE
from bench.broker.servers import broker
from bench.harness import Contender, Race, Run, Sized, UnavailableError, Versus

BOTO = "boto3 send_message"
_READ_BYTES = 4096


@contextmanager
def _mailbox() -> Iterator[Run]:
    try:
        from pillarbox.mailbox.broker import BrokerMailbox  # noqa: PLC0415 - it may be missing
    except ImportError as error:
        raise UnavailableError(str(error)) from error
    with broker(None) as (url, _), BrokerMailbox("mail", str, url=url) as box:
        send = box.send

        def run(operations: int) -> None:
            for _ in range(operations):
                send(BODY)

        yield run


@contextmanager
def _boto() -> Iterator[Run]:
    names = {"aws_access_key_id": "bench", "aws_secret_access_key": "bench"}
    with broker(None) as (url, _):
        sqs = boto3.client("sqs", endpoint_url=url, region_name="us-east-1", **names)

        def run(operations: int) -> None:
            for _ in range(operations):
                sqs.send_message(QueueUrl=QUEUE, MessageBody=BODY)

        yield run


def _echo_server(port: Connection) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port.send(server.getsockname()[1])
        line, _ = server.accept()
        with line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := line.recv(_READ_BYTES):
                line.sendall(data)


@contextmanager
def _echo() -> Iterator[Run]:
    """What no client can be faster than: the bytes go to another process and come back."""
    context = get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=_echo_server, args=(there,), daemon=True)
    server.start()
    with socket.create_connection(("127.0.0.1", here.recv())) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = BODY.encode()

        def run(operations: int) -> None:
            for _ in range(operations):
                line.sendall(data)
                line.recv(_READ_BYTES)

        yield run
    server.join()


def python(sized: Sized) -> Race:
    return Race(
        "one Python thread sends",
        (
            Contender(
                "BrokerMailbox.send", _mailbox, sized(20_000), (Versus(BOTO, speed_at_least=15),)
            ),
            Contender(BOTO, _boto, sized(2_000)),
            Contender("100 bytes there and back", _echo, sized(20_000), (), "all but the socket"),
        ),
    )
