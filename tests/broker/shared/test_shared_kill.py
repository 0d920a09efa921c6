"""R141: any of two brokers may be killed at any time; the queues are in the store they share."""

from __future__ import annotations

import http.client
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

from tests.broker.server_process import Server
from tests.broker.shared.stores import KINDS, StoreKind
from tests.broker.support import Client, Refused, eventually

LEASE_SECONDS = 3
PATIENCE_SECONDS = 20.0
LOST = (OSError, http.client.HTTPException)


class Delivered(NamedTuple):
    """One delivery; it began at some time between these two."""

    number: int  # how often the message was received by then
    asked_at: float
    came_at: float
    body: str


class Load:
    """Clients that send, receive and delete, each call at any broker that answers."""

    def __init__(self, servers: list[Server], seed: int) -> None:
        self._servers = servers
        self._random = random.Random(seed)
        self.confirmed: set[str] = set()
        self.delivered: dict[str, list[Delivered]] = {}  # by message id
        self.deleted: dict[str, float] = {}  # by message id: when that was confirmed
        self.problems: list[str] = []
        self._sending, self._receiving = threading.Event(), threading.Event()
        self._names = itertools.count()
        self._lock = threading.Lock()
        self.going = threading.Event()  # unset while a broker starts, which needs the CPU
        self.going.set()

    def ask(self, action: str, **parameters: Any) -> dict[str, Any] | None:
        """The answer; None if the connection was lost, so that nobody knows what was done."""
        server = self._random.choice(self._servers)
        try:
            with Client(f"http://127.0.0.1:{server.port}") as sqs:
                return sqs(action, QueueUrl="orders", **parameters)
        except LOST:
            return None

    def _send(self) -> None:
        while not self._sending.is_set():
            self.going.wait()
            body = str(next(self._names))
            if self.ask("SendMessage", MessageBody=body) is not None:
                self.confirmed.add(body)

    def _receive(self) -> None:
        while not self._receiving.is_set():
            asked_at = time.monotonic()
            answer = self.ask(
                "ReceiveMessage",
                MaxNumberOfMessages=5,
                VisibilityTimeout=LEASE_SECONDS,
                WaitTimeSeconds=1,
                AttributeNames=["ApproximateReceiveCount"],
            )
            came_at = time.monotonic()
            for message in (answer or {}).get("Messages", []):
                number = int(message["Attributes"]["ApproximateReceiveCount"])
                found = Delivered(number, asked_at, came_at, message["Body"])
                with self._lock:
                    self.check(message["MessageId"], found)
                handle = message["ReceiptHandle"]
                if self.ask("DeleteMessage", ReceiptHandle=handle) is not None:
                    self.deleted.setdefault(message["MessageId"], time.monotonic())

    def check(self, message_id: str, found: Delivered) -> None:
        """Nothing comes again while it is leased, and never after its delete was confirmed."""
        for other in self.delivered.get(message_id, []):
            first, second = sorted((found, other))  # an answer may be late, and be read second
            if first.number == second.number or second.came_at < first.asked_at + LEASE_SECONDS:
                self.problems.append(f"{found.body} was delivered twice while leased")
        if message_id in self.deleted and found.asked_at > self.deleted[message_id]:
            self.problems.append(f"{found.body} was delivered after it was deleted")
        self.delivered.setdefault(message_id, []).append(found)

    @property
    def lost(self) -> set[str]:
        """What was confirmed, and has not been delivered."""
        known = list(self.delivered.values())
        return set(self.confirmed) - {found.body for each in known for found in list(each)}

    @contextmanager
    def running(self) -> Iterator[None]:
        receivers = [self._start(self._receive) for _ in range(2)]
        senders = [self._start(self._send) for _ in range(2)]
        try:
            yield
            self._sending.set()
            for each in senders:
                each.join()
            until = time.monotonic() + PATIENCE_SECONDS
            while self.lost and not self.problems and time.monotonic() < until:
                time.sleep(0.02)
        finally:
            self._sending.set()
            self._receiving.set()
            self.going.set()
            for each in (*senders, *receivers):
                each.join()

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Refused as refused:
                self.problems.append(str(refused))

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def kill_at_random(arguments: tuple[str, ...], rounds: int, seed: int = 141) -> Load:
    """Kill one of two brokers under load, again and again."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(*arguments)) for _ in range(2)]
        for server in servers:
            with Client(server.url) as sqs:
                sqs("CreateQueue", QueueName="orders")
        load = Load(servers, seed)
        with load.running():
            for _ in range(rounds):
                goal = len(load.confirmed) + chance.randrange(20, 60)
                eventually(lambda: len(load.confirmed) >= goal)  # noqa: B023 - within the round
                victim = chance.choice(servers)
                victim.kill()
                goal = len(load.confirmed) + chance.randrange(10, 30)
                eventually(  # the other one goes on
                    lambda: len(load.confirmed) >= goal or bool(load.problems)  # noqa: B023
                )
                load.going.clear()
                victim.start()
                load.going.set()
    return load


def _prove(kind: type[StoreKind], rounds: int) -> None:
    store = kind()
    try:
        load = kill_at_random(("--store", store.url), rounds)
    finally:
        store.close()
    assert load.problems == []
    assert not load.lost


EARLY = Delivered(1, 0.0, 4.0, "a")  # it took longer than the lease to be read


@pytest.mark.parametrize(
    ("other", "problems"),
    [
        pytest.param(Delivered(2, 2.5, 3.2, "a"), 0, id="after the lease"),
        pytest.param(Delivered(2, 2.5, 2.9, "a"), 1, id="within the lease"),
        pytest.param(Delivered(1, 2.5, 3.2, "a"), 1, id="the same delivery"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_R141_an_answer_that_is_late_is_no_second_delivery(
    other: Delivered, problems: int, late: bool
) -> None:
    load = Load([], 0)
    for each in (other, EARLY) if late else (EARLY, other):
        load.check("id", each)
    assert len(load.problems) == problems


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_R141_nothing_is_lost_or_doubled_when_one_of_two_brokers_is_killed(
    kind: type[StoreKind],
) -> None:
    _prove(kind, rounds=3)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_R141_fifty_kills_under_load(kind: type[StoreKind]) -> None:
    _prove(kind, rounds=50)


def test_R141_control_brokers_that_share_nothing_lose_messages() -> None:
    load = kill_at_random(("--data", "none"), rounds=1)
    assert load.lost or any("NonExistentQueue" in each for each in load.problems)
