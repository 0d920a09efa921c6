"""What a Python user gets from one thread: `BrokerMailbox` beside boto3, on the same server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import boto3

from bench.broker.crowd import BODY
from bench.broker.servers import QUEUE, broker
from bench.harness import Contender, Race, Run, Sized, UnavailableError, Versus

BOTO = "boto3 send_message"


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


def python(sized: Sized) -> Race:
    return Race(
        "one Python thread sends",
        (
            Contender(
                "BrokerMailbox.send", _mailbox, sized(20_000), (Versus(BOTO, speed_at_least=15),)
            ),
            Contender(BOTO, _boto, sized(2_000)),
        ),
    )
