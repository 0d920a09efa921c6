"""R141: any of two brokers may be killed at any time; the queues are in the store they share."""

from __future__ import annotations

import http.client
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.broker.server_process import Server
from tests.broker.shared.stores import KINDS, StoreKind
from tests.broker.support import Client, Refused, eventually

LEASE_SECONDS = 3
PATIENCE_SECONDS = 20.0
LOST = (OSError, http.client.HTTPException)


class Load:
    """Clients that send, receive and delete, each call at any broker that answers."""

    def __init__(self, servers: list[Server], seed: int) -> None:
        self._servers = servers
        self._random = random.Random(seed)
        self.confirmed: set[str] = set()
        self.delivered: dict[str, list[tuple[float, float, str]]] = {}  # by message id
        self.deleted: dict[str, float] = {}  # by message id: when that was confirmed
        self.problems: list[str] = []
        self._sending, self._receiving = threading.Event(), threading.Event()
        self._names = itertools.count()
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
            )
            came_at = time.monotonic()
            for message in (answer or {}).get("Messages", []):
                self._check(message["MessageId"], asked_at, came_at, message["Body"])
                handle = message["ReceiptHandle"]
                if self.ask("DeleteMessage", ReceiptHandle=handle) is not None:
                    self.deleted.setdefault(message["MessageId"], time.monotonic())

    def _check(self, message_id: str, asked_at: float, came_at: float, body: str) -> None:
        """Nothing comes again while it is leased, and never after its delete was confirmed."""
        for earlier, _, _ in self.delivered.get(message_id, []):
            if came_at < earlier + LEASE_SECONDS:
                self.problems.append(f"{body} was delivered twice while leased")
        if message_id in self.deleted and asked_at > self.deleted[message_id]:
            self.problems.append(f"{body} was delivered after it was deleted")
        self.delivered.setdefault(message_id, []).append((asked_at, came_at, body))

    @property
    def lost(self) -> set[str]:
        """What was confirmed, and has not been delivered."""
        known = list(self.delivered.values())
        return set(self.confirmed) - {body for each in known for _, _, body in list(each)}

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
