"""Pillarbox's own broker as the server under `SQSMailbox`, with a clock that tests can move."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import boto3

from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.clock import FakeClock

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class BrokerServer:
    """A running broker; `endpoint` is where it listens."""

    def __init__(self, url: RunningBroker, clock: FakeClock, client: Any) -> None:
        self.endpoint = str(url)
        self.clock = clock
        self._store = url.broker.store
        self._client = client

    def reset(self) -> None:
        """Forget every queue; keys that ran ahead of a clock that stood still are caught up."""
        self.clock.advance(60)
        for url in self._client.list_queues().get("QueueUrls", []):
            self._client.delete_queue(QueueUrl=url)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def parked(self, queue: str) -> int:
        return len(self._store.sessions[queue].waiters)


@contextmanager
def broker_on_a_fake_clock() -> Iterator[BrokerServer]:
    """The broker on a free port, while this lasts."""
    clock = FakeClock()
    with patch.dict(os.environ, KEYS), running_broker(clock=clock) as url:
        client = boto3.Session().client("sqs", endpoint_url=str(url), region_name="us-east-1")
        yield BrokerServer(url, clock, client)
