"""R59: a table of every metric: each has a scenario in which it moves by the right amount."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pillarbox import open_mailbox
from pillarbox.mailbox.broker import wire
from tests.broker.metrics_shop import Q, Shop, open_shop
from tests.broker.native.support import RawClient, until
from tests.broker.support import Client, Refused
from tests.broker.test_metrics import WAYS


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(str(tmp_path / "data"), "fsync") as made:
        yield made


def depth(shop: Shop) -> None:
    shop.create()
    for delay in (0, 0, 0, 9, 9):
        shop.sqs.send(Q, "a", DelaySeconds=delay)
    shop.sqs.receive(Q, 1)
    shop.clock.advance(3)
    seen = shop.samples()
    counts = [seen[f"pillarbox_messages{{{Q},{x}}}"] for x in ("ready", "scheduled", "in_flight")]
    assert counts == [2, 2, 1]
    assert seen[f"pillarbox_oldest_message_seconds{{{Q}}}"] == pytest.approx(3)
    shop.sqs("PurgeQueue", QueueUrl=Q)
    seen = shop.samples()
    assert seen[f"pillarbox_messages{{{Q},ready}}"] == 0
    assert seen[f"pillarbox_oldest_message_seconds{{{Q}}}"] == 0


def time_in_queue(shop: Shop) -> None:
    """Of the first receive only, and not of an answer that is repeated."""
    name = f"{Q}.fifo"
    shop.create(name, FifoQueue="true")
    shop.sqs.send(name, "a", MessageGroupId="g", MessageDeduplicationId="1")
    shop.clock.advance(2)
    for _ in range(2):
        assert shop.sqs.bodies(name, 1, ReceiveRequestAttemptId="x") == ["a"]
    with open_mailbox(f"{shop.url}/{Q}", str) as box:
        box.send("b")
        shop.clock.advance(5)
        for _ in range(2):
            box.receive()[0].nack()
    seen = shop.samples()
    assert seen["pillarbox_time_in_queue_seconds_count"] == 2
    assert seen["pillarbox_time_in_queue_seconds_sum"] == 7
    assert seen["pillarbox_time_in_queue_seconds_bucket{1}"] == 0
    assert seen["pillarbox_time_in_queue_seconds_bucket{3}"] == 1
    assert shop.totals(name) == {"sent": 1, "received": 1}


def confirmations(shop: Shop) -> None:
    before = shop.samples()
    shop.create()
    shop.sqs.send(Q, "a")
    seen = shop.samples()
    for name in ("pillarbox_sync_seconds", "pillarbox_sync_batch_size"):
        assert seen[f"{name}_count"] == before[f"{name}_count"] + 2
    moved = seen["pillarbox_sync_batch_size_sum"] - before["pillarbox_sync_batch_size_sum"]
    assert moved == 2
    assert seen["pillarbox_sync_seconds_sum"] > before["pillarbox_sync_seconds_sum"]


def requests(shop: Shop) -> None:
    shop.create()
    for _ in range(3):
        shop.sqs.send(Q, "a")
    with open_mailbox(f"{shop.url}/{Q}", str) as box:
        box.send("b")
        box.stats()
    seen = shop.samples()
    assert seen["pillarbox_requests_total{CreateQueue}"] == 2  # a mailbox asks for its queue
    assert seen["pillarbox_requests_total{SendMessage}"] == 4
    assert seen["pillarbox_requests_total{GetQueueAttributes}"] == 1


def errors(shop: Shop) -> None:
    """Whatever is answered with an error, at once or later, in either protocol."""
    missing = "AWS.SimpleQueueService.NonExistentQueue"
    shop.create()
    for _ in range(2):
        with pytest.raises(Refused):
            shop.sqs.send("nowhere", "a")
    with pytest.raises(Refused):
        shop.sqs("NoSuchAction")
    with RawClient(shop.url) as native:
        (outcome,) = native.ask("nowhere", 1, wire.Purge())
        assert isinstance(outcome, wire.Failed)
        (outcome,) = native.ask("nowhere", 2, wire.Receive(1, 9))
        assert isinstance(outcome, wire.Failed)
    assert shop.sqs.raw("GET", "/pillarbox/v1/nowhere/messages")[0] == 400
    assert shop.samples()[f"pillarbox_errors_total{{{missing}}}"] == 5
    assert shop.samples()["pillarbox_errors_total{UnknownOperationException}"] == 1
    other = Client(shop.url)

    def wait() -> None:
        with pytest.raises(Refused):
            other.receive(Q, WaitTimeSeconds=20)

    thread = threading.Thread(target=wait)
    thread.start()
    shop.parked(1)
    shop.sqs("DeleteQueue", QueueUrl=Q)  # so whoever waits is told that it is gone
    thread.join()
    other.close()
    assert shop.samples()[f"pillarbox_errors_total{{{missing}}}"] == 6


def parked(shop: Shop) -> None:
    shop.create()
    with ExitStack() as stack:
        others = [stack.enter_context(Client(shop.url)) for _ in range(2)]
        box = stack.enter_context(open_mailbox(f"{shop.url}/{Q}", str))
        asked: list[Callable[[], object]] = [
            lambda each=each: each.receive(Q, WaitTimeSeconds=20)  # type: ignore[misc]
            for each in others
        ]
        threads = [
            threading.Thread(target=each)
            for each in (*asked, lambda: box.receive(wait_time_seconds=20))
        ]
        for number, thread in enumerate(threads, 1):
            thread.start()
            shop.parked(number)
        shop.clock.advance(21)
        for thread in threads:
            thread.join()
        shop.parked(0)


def connections(shop: Shop) -> None:
    assert shop.samples()["pillarbox_connections"] == 1
    with Client(shop.url) as other:
        other("ListQueues")
        assert shop.samples()["pillarbox_connections"] == 2
    until(lambda: shop.samples()["pillarbox_connections"] == 1, "it is gone")


TABLE: dict[str, Callable[[Shop], None]] = {
    "pillarbox_messages": depth,
    "pillarbox_oldest_message_seconds": depth,
    "pillarbox_time_in_queue_seconds": time_in_queue,
    "pillarbox_sync_seconds": confirmations,
    "pillarbox_sync_batch_size": confirmations,
    "pillarbox_requests": requests,
    "pillarbox_errors": errors,
    "pillarbox_parked_polls": parked,
    "pillarbox_connections": connections,
}


@pytest.mark.parametrize("scenario", dict.fromkeys(TABLE.values()), ids=lambda x: x.__name__)
def test_R59_metrics_move(shop: Shop, scenario: Callable[[Shop], None]) -> None:
    scenario(shop)


def test_R59_every_metric_has_a_row(shop: Shop) -> None:
    shop.create()
    data = shop.sqs.raw("GET", "/metrics")[2].decode()
    told = {line.split()[2] for line in data.splitlines() if line.startswith("# TYPE")}
    told = {name.removesuffix("_total") for name in told}
    ways = {f"pillarbox_messages_{name}" for _, expected in WAYS for name in expected}
    ways.add("pillarbox_messages_redriven")  # which the test of the ways looks for itself
    assert told - ways - set(TABLE) == set()


def test_R59_a_dropped_queue_leaves_no_metrics_behind(shop: Shop) -> None:
    """Neither in the answer nor in memory; a new queue of its name begins at 0."""
    before = set(shop.samples())
    for number in range(20):
        name = f"q{number}"
        shop.create(name)
        shop.sqs.send(name, "a")
        shop.sqs.receive(name)
        if number % 2:
            shop.sqs("DeleteQueue", QueueUrl=name)
        else:
            with RawClient(shop.url) as native:
                native.ask(name, 1, wire.Drop())
    left = {name for name in shop.samples() if "{q" in name}
    assert left == set()
    assert before <= set(shop.samples())
    shop.create("q0")
    shop.create("q1")
    assert (shop.totals("q0"), shop.totals("q1")) == ({}, {})
