"""A broker on a fake clock whose metrics are read, for the tables of metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from pillarbox import DeadLetterPolicy, Mailbox, open_mailbox
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.native.support import until
from tests.broker.support import Client

Q = "orders"  # the queue that every row is about


class Shop:
    """A broker on a fake clock, a client of each of its protocols, and its metrics."""

    def __init__(self, url: RunningBroker, clock: FakeClock) -> None:
        self.url = url
        self.clock = clock
        self.sqs = Client(url)

    def create(self, name: str = Q, **attributes: Any) -> str:
        given = {key: str(value) for key, value in attributes.items()}
        url: str = self.sqs("CreateQueue", QueueName=name, Attributes=given)["QueueUrl"]
        return url

    def create_with_dead_letters(self, most: int = 1, **attributes: Any) -> None:
        self.create("dead")
        target = self.sqs.arn("dead")
        policy = {"deadLetterTargetArn": target, "maxReceiveCount": most}
        self.create(RedrivePolicy=json.dumps(policy), **attributes)

    def mailbox(self, most: int = 1) -> Mailbox[str]:
        policy = DeadLetterPolicy(most, "dead")
        box: Mailbox[str] = open_mailbox(f"{self.url}/{Q}", str, dead_letters=policy)
        return box

    def samples(self) -> dict[str, float]:
        """By name and labels: `pillarbox_messages{orders,ready}`."""
        found = {}
        data = self.sqs.raw("GET", "/metrics")[2].decode()
        for family in text_string_to_metric_families(data):
            for sample in family.samples:
                labels = ",".join(sample.labels.values())
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    def totals(self, queue: str = Q) -> dict[str, int]:
        """The counters of a queue that are not 0."""
        found = {}
        for name, value in self.samples().items():
            if name.endswith(f"_total{{{queue}}}") and value:
                short = name.removeprefix("pillarbox_messages_").partition("_total")[0]
                found[short] = int(value)
        return found

    def parked(self, count: int) -> None:
        until(lambda: self.samples()["pillarbox_parked_polls"] == count, f"{count} wait")


@contextmanager
def open_shop(data: str | None = None, durability: str = "memory") -> Iterator[Shop]:
    clock = FakeClock()
    with running_broker(data, durability, clock=clock) as url:
        made = Shop(url, clock)
        yield made
        made.sqs.close()
