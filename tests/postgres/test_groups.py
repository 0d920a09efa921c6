"""R16, R19: consumers that compete for the groups of a queue, each in transactions of its own."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from pillarbox import DeadLetterPolicy, PostgresMailbox

CONSUMERS, GROUPS, EACH = 6, 3, 40


@pytest.mark.parametrize("redelivery", ["tail", "original"])
def test_R16_competing_consumers_keep_the_order_of_groups(
    url: str, redelivery: Literal["tail", "original"]
) -> None:
    """Nothing new of a group is delivered while an earlier message of it was not acknowledged."""
    held: set[str] = set()
    acknowledged: set[Any] = set()
    wrong: list[Any] = []
    lock = threading.Lock()

    def look(batch: Sequence[Any]) -> None:
        with lock:
            for message in batch:
                if message.id in held:
                    wrong.append(("held twice", message.body))
                held.add(message.id)
            before = set(acknowledged)
            for message in batch:
                group, number = message.body
                earlier = {(group, n) for n in range(number)}
                if message.delivery_count == 1 and not earlier <= before:
                    wrong.append(("too early", message.body))
                before.add((group, number))

    def consume(number: int) -> None:
        chance = random.Random(number)
        with PostgresMailbox("orders", url=url, retry_seconds=5) as box:
            while len(acknowledged) < GROUPS * EACH and not wrong:
                batch = box.receive(max_messages=chance.choice([1, 3]), wait_time_seconds=1)
                look(batch)
                for message in batch:
                    act = chance.choice(["acknowledge", "acknowledge", "nack"])
                    with lock:
                        held.discard(message.id)
                        if act == "acknowledge":
                            acknowledged.add(tuple(message.body))
                    if not getattr(message, act)():
                        wrong.append((act, message.body))

    with PostgresMailbox("orders", url=url, redelivery=redelivery) as box:
        for number in range(EACH):
            for group in range(GROUPS):
                box.send((group, number), group=str(group))
        threads = [threading.Thread(target=consume, args=(n,)) for n in range(CONSUMERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert box.approximate_count() == 0


def test_R39_a_redrive_keeps_the_order_of_a_group_that_was_looked_at(url: str) -> None:
    policy = DeadLetterPolicy(max_deliveries=1, name="dead")
    with (
        PostgresMailbox("orders", str, url=url, dead_letters=policy) as box,
        PostgresMailbox("dead", str, url=url) as dead,
    ):
        for body in "abc":
            box.send(body, group="g")
        for message in box.receive(max_messages=10):
            message.nack()
        for message in reversed(dead.receive(max_messages=10)):
            message.nack()  # the group is behind others now
        assert dead.redrive() == 3
        assert [message.body for message in box.receive(max_messages=10)] == ["a", "b", "c"]
