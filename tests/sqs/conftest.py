"""A broker in real time for all tests of this directory, and a proxy that fails on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from pillarbox.mailbox.sqs import SQSMailbox
from pillarbox.testing.broker import running_broker
from tests.sqs.broker_server import KEYS
from tests.sqs.faulty_proxy import FaultyProxy, faulty_proxy

Open = Callable[..., SQSMailbox[Any]]


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    with patch.dict(os.environ, KEYS), running_broker(purge_interval_seconds=60) as url:
        yield str(url)


@pytest.fixture(scope="session")
def shared_proxy(endpoint: str) -> Iterator[FaultyProxy]:
    with faulty_proxy(endpoint) as running:
        yield running


@pytest.fixture
def proxy(shared_proxy: FaultyProxy) -> FaultyProxy:
    shared_proxy.faults.clear()
    shared_proxy.calls.clear()
    return shared_proxy


@pytest.fixture
def open_box(endpoint: str) -> Iterator[Open]:
    """open_box(body_type, ...): a mailbox on a new queue, closed after the test."""
    opened: list[SQSMailbox[Any]] = []

    def make(body_type: Any = str, *, suffix: str = "", **options: Any) -> SQSMailbox[Any]:
        options = {"endpoint": endpoint, "create": True, **options}
        name = options.pop("name", f"box-{uuid4().hex}{suffix}")
        opened.append(SQSMailbox(name, body_type, **options))
        return opened[-1]

    yield make
    for mailbox in opened:
        mailbox.close()


@pytest.fixture
def behind_proxy(open_box: Open, proxy: FaultyProxy) -> Open:
    """`open_box` through the proxy, whose calls are counted from then on."""

    def make(body_type: Any = str, **options: Any) -> SQSMailbox[Any]:
        box = open_box(body_type, endpoint=proxy.endpoint, **options)
        proxy.calls.clear()
        return box

    return make
