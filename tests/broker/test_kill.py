"""kill -9 of the server under sixteen clients: nothing confirmed is lost, nothing deleted lives.

Clients work on one queue each, over raw connections, and come back by themselves. What a
client was told is the truth it holds the server to: a send that was answered must be there,
a delete that was answered must never be seen again. What was not answered may be either.
"""

from __future__ import annotations

import http.client
import random
import threading
import time

import pytest

from pillarbox.mailbox.durable_store import DurableStore
from tests.broker.server_process import Server
from tests.broker.support import Client

CLIENTS = 16
_BROKEN = (OSError, http.client.HTTPException)


class Customer:
    """Sends, receives and deletes on its own queue, and remembers what it was told."""

    def __init__(self, url: str, number: int) -> None:
        self.url = url
        self.queue = f"kill{number}"
        self.confirmed: set[str] = set()
        self.unsure: set[str] = set()  # asked for, never answered
        self.deleted: set[str] = set()
        self.perhaps_deleted: set[str] = set()
        self.revived: set[str] = set()
        self.reconnects = 0
        self._numbers = iter(range(1 << 30))
        self._random = random.Random(number)

    def work(self, over: threading.Event) -> None:
        while not over.is_set():
            try:
                with Client(self.url, self._random.choice(("json", "query"))) as sqs:
                    sqs("CreateQueue", QueueName=self.queue)
                    while not over.is_set():
                        self._turn(sqs)
            except _BROKEN:
                self.reconnects += 1
                over.wait(0.02)

    def _turn(self, sqs: Client) -> None:
        bodies = [f"{self.queue}:{next(self._numbers)}" for _ in range(self._random.choice((1, 5)))]
        self.unsure.update(bodies)
        if len(bodies) == 1:
            sqs.send(self.queue, bodies[0])
        else:
            entries = [{"Id": str(i), "MessageBody": body} for i, body in enumerate(bodies)]
            assert "Failed" not in sqs("SendMessageBatch", QueueUrl=self.queue, Entries=entries)
        self.unsure.difference_update(bodies)
        self.confirmed.update(bodies)
        for message in sqs.receive(self.queue, self._random.choice((1, 3)), VisibilityTimeout=600):
            self.saw(message["Body"])
            if self._random.random() < 0.7:
                self.perhaps_deleted.add(message["Body"])
                sqs.delete(self.queue, message)
                self.deleted.add(message["Body"])

    def saw(self, body: str) -> None:
        if body in self.deleted:
            self.revived.add(body)


def _rounds(store: str, durability: str, rounds: int) -> tuple[int, int, int, int]:
    """Confirmed, lost, revived, reconnects."""
    arguments = ("--data", store, "--durability", durability)
    with Server(*arguments) as server:
        customers = [Customer(server.url, number) for number in range(CLIENTS)]
        chance = random.Random(7)
        for _ in range(rounds):
            over = threading.Event()
            threads = [threading.Thread(target=each.work, args=(over,)) for each in customers]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.2, 0.5))  # how long it works is what is varied
            server.kill()
            server.start()
            time.sleep(0.1)  # long enough for some to come back
            over.set()
            for thread in threads:
                thread.join()
        server.kill()
    left = _everything(store)
    lost = revived = 0
    for each in customers:
        found = left.get(each.queue, set())
        lost += len(each.confirmed - each.perhaps_deleted - found)
        revived += len(each.revived | (each.deleted & found))
    confirmed = sum(len(each.confirmed) for each in customers)
    return confirmed, lost, revived, sum(each.reconnects for each in customers)


def _everything(path: str) -> dict[str, set[str]]:
    """What a store holds after its server is gone, in whatever state, by queue."""
    store = DurableStore(path)
    found: dict[str, set[str]] = {}
    for name, session in store.sessions.items():
        records = [
            record for state in ("ready", "in_flight") for record, _ in session.look(state, None)
        ]
        found[name] = {(body or b"").decode() for body in session.bodies(records)}
    store.close()
    return found


def test_R58_what_was_confirmed_survives_kill_9_and_what_was_deleted_stays_gone(
    store: str,
) -> None:
    confirmed, lost, revived, reconnects = _rounds(store, "os", 3)
    assert confirmed > 100
    assert reconnects >= CLIENTS
    assert (lost, revived) == (0, 0)


def test_R58_the_same_with_every_confirmation_on_disk(store: str) -> None:
    confirmed, lost, revived, _ = _rounds(store, "fsync", 2)
    assert confirmed > 100
    assert (lost, revived) == (0, 0)


def test_R58_control_at_level_memory_a_kill_loses_what_was_confirmed(store: str) -> None:
    """Its buffer is written every 50 ms, so a kill right after a confirmation loses it."""
    confirmed: set[str] = set()
    with Server("--data", store, "--durability", "memory") as server:
        for attempt in range(10):
            with Client(server.url) as sqs:
                sqs("CreateQueue", QueueName="kill")
                for number in range(20):
                    sqs.send("kill", f"{attempt}:{number}")
                    confirmed.add(f"{attempt}:{number}")
            server.kill()
            if confirmed - _everything(store).get("kill", set()):
                return
            server.start()
    raise AssertionError("ten kills lost nothing, so the tests above prove nothing")


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_R58_fifty_rounds(store: str, durability: str) -> None:
    confirmed, lost, revived, reconnects = _rounds(store, durability, 50)
    assert confirmed > 1_000
    assert reconnects >= 50 * CLIENTS // 2
    assert (lost, revived) == (0, 0)
