"""For information: what typed bodies, priorities, delays and groups add to a cycle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Struct

from bench.core.cycle import BODY, cycling, pillarbox_cycle
from bench.harness import Contender, Race, Run, Sized, Versus
from pillarbox import InMemoryMailbox
from pillarbox.testing.clock import FakeClock

PLAIN = "a str"
PRIORITIES = 8
STANDING = 100  # messages that wait in each priority, so that all of them are in use
GROUPS = [f"group-{number}" for number in range(16)]
ROUND_TRIP = 1_000  # delayed messages that are sent before their time comes


class OrderStruct(Struct):
    item: str
    count: int
    urgent: bool


@dataclass
class OrderDataclass:
    item: str
    count: int
    urgent: bool


@contextmanager
def _typed(body: Any) -> Iterator[Run]:
    box: InMemoryMailbox[Any] = InMemoryMailbox("bench", type(body))

    yield cycling(box, body)
    assert box.approximate_count() == 0


@contextmanager
def _priorities() -> Iterator[Run]:
    box: InMemoryMailbox[str] = InMemoryMailbox("bench", str)
    for priority in range(PRIORITIES):
        box.send_many([BODY] * STANDING, priority=priority)

    def run(operations: int) -> None:
        send, receive = box.send, box.receive
        for number in range(operations):
            send(BODY, priority=number % PRIORITIES)
            (message,) = receive()
            message.acknowledge()

    yield run
    assert box.approximate_count() == PRIORITIES * STANDING


@contextmanager
def _groups() -> Iterator[Run]:
    box: InMemoryMailbox[str] = InMemoryMailbox("bench", str)

    def run(operations: int) -> None:
        send, receive = box.send, box.receive
        for number in range(operations):
            send(BODY, group=GROUPS[number % len(GROUPS)])
            (message,) = receive()
            message.acknowledge()

    yield run
    assert box.approximate_count() == 0


@contextmanager
def _delays() -> Iterator[Run]:
    clock = FakeClock()
    box: InMemoryMailbox[str] = InMemoryMailbox("bench", str, clock=clock)

    def run(operations: int) -> None:
        send, receive = box.send, box.receive
        for start in range(0, operations, ROUND_TRIP):
            count = min(ROUND_TRIP, operations - start)
            for _ in range(count):
                send(BODY, delay_seconds=1)
            clock.advance(1)
            for _ in range(count):
                (message,) = receive()
                message.acknowledge()

    yield run
    assert box.approximate_count() == 0


def costs(sized: Sized) -> Race:
    many = sized(100_000)
    struct = OrderStruct("pillar box", 2, True)
    plain_class = OrderDataclass("pillar box", 2, True)
    versus = (Versus(PLAIN),)
    return Race(
        "full cycle, by what a message has",
        (
            Contender(PLAIN, pillarbox_cycle, many),
            Contender("a msgspec Struct", partial(_typed, struct), many, versus),
            Contender("a dataclass", partial(_typed, plain_class), many, versus),
            Contender(f"{PRIORITIES} priorities", _priorities, many, versus),
            Contender("a delay of 1 s (fake clock)", _delays, many, versus),
            Contender(f"{len(GROUPS)} groups", _groups, many, versus),
        ),
    )
