"""The quick verbs of a mailbox in memory do what `decide` and `apply` do (R50)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pillarbox import (
    AsyncInMemoryMailbox,
    DeadLetterPolicy,
    InMemoryMailbox,
    ReceiptHandleExpiredError,
)
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.memory import AsyncMemoryMessage, MemoryMessage
from pillarbox.testing import FakeClock
from tests.model.sameness import view
from tests.model.world import SECOND, NoPulse, Parked

STEPS = 400
OPTIONS: list[Any] = [
    {"priority": 7},
    {"priority": 255, "attributes": {"tea": "Assam"}},
    {"attributes": {}},
    {"attributes": {"Pillarbox.Priority": "1"}},
    {"attributes": None, "priority": 0},
    {"priority": 256},
    {"priority": True},
    {"priority": 1.0},
    {"attributes": {"tea": 1}},
    {"attributes": ["tea"]},
    {"attributes": {"tea": "x" * (1 << 20)}},
    {"reply_to": "answers"},
    {"group": "g"},
    {"delay_seconds": 5},
    {"teas": 1},
]
Box = InMemoryMailbox[str]


class Twins:
    """Two mailboxes with the same past: one takes the quick way, the other never does."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        options: Any = {
            "redelivery": self.rng.choice(("tail", "original")),
            "capacity": self.rng.choice((None, None, 20)),
            "dead_letters": self.rng.choice((None, None, DeadLetterPolicy(2, "dead"))),
        }
        self.quick: Box = InMemoryMailbox("jobs", str, clock=self.clock, **options)
        self.slow: Box = InMemoryMailbox("jobs", str, clock=self.clock, **options)
        for box in (self.quick, self.slow):  # who waits is served by verbs, not by another thread
            box._store.pulse = NoPulse()  # type: ignore[assignment]
        self.special = self.rng.random() < 0.5  # groups and priorities now and then
        self.held: list[tuple[Any, Any]] = []
        self.parked: list[tuple[Parked, Parked]] = []
        self.waits = self.rng.random() < 0.5  # receivers are parked now and then
        self.seen: Counter[str] = Counter()
        if self.rng.random() < 0.5:  # an index of what is in flight must make no difference
            self.slow._session.queue.leases.find(0)
        self._count_general_receives()

    def _count_general_receives(self) -> None:
        general = self.quick._session.receive

        def receive(*arguments: Any) -> Any:
            self.seen["general"] += 1
            return general(*arguments)

        self.quick._session.receive = receive  # type: ignore[method-assign]

    def step(self) -> None:
        verbs = (self.send, self.receive, self.acknowledge, self.batch, self.other, self.jump)
        self.rng.choices((*verbs, self.park), (6, 6, 5, 3, 2, 2, 2 * self.waits))[0]()
        for ours, theirs in self.parked:
            assert ours.seen == theirs.seen, "who waits is given the same"
        assert self.quick.stats() == self.slow.stats()  # asked first: it settles what is due
        assert view(self.quick._session.queue) == view(self.slow._session.queue)
        assert self.quick._session.queue.mask == self.slow._session.queue.mask
        assert self.quick._session.queue.wake_at == self.slow._session.queue.wake_at

    def send(self) -> None:
        options: Any = {}
        if self.special and self.rng.random() < 0.4:
            options = self.rng.choice(OPTIONS)
        self._both(
            lambda: self.quick.send("a", **options),
            lambda: LocalMailbox.send(self.slow, "a", **options),
        )

    def receive(self) -> None:
        options: Any = {}
        if self.rng.random() < 0.2:
            options = {"visibility_timeout": self.rng.choice(range(1, 40))}
        if self.rng.random() < 0.3:
            options["max_messages"] = self.rng.randrange(1, 6)
        got = self.quick.receive(**options)
        expected = LocalMailbox.receive(self.slow, **options)
        self.seen["received"] += 1
        assert list(map(shown, got)) == list(map(shown, expected))
        self.held += zip(got, expected, strict=True)

    def acknowledge(self) -> None:
        if self.held:
            ours, theirs = self.rng.choice(self.held)
            assert [ours.acknowledge()] == LocalMailbox.acknowledge_many(self.slow, [theirs])

    def batch(self) -> None:
        if self.rng.random() < 0.5:
            bodies = [str(number) for number in range(self.rng.randrange(5))]
            options: Any = {"priority": 7} if self.special and self.rng.random() < 0.2 else {}
            self._both(
                lambda: self.quick.send_many(bodies, **options),
                lambda: LocalMailbox.send_many(self.slow, bodies, **options),
            )
        else:  # one of them may be named twice
            chosen = self.rng.choices(self.held, k=3) if self.held else []
            answers = self.quick.acknowledge_many([ours for ours, _ in chosen])
            others = [theirs for _, theirs in chosen]
            assert answers == LocalMailbox.acknowledge_many(self.slow, others)

    def other(self) -> None:
        if not self.held or self.rng.random() < 0.02:
            assert self.quick.purge() == self.slow.purge()
            return
        if self.special and self.rng.random() < 0.02:
            ids = [message.id for message, _ in self.held]
            assert self.quick.delete(ids) == self.slow.delete([m.id for _, m in self.held])
        ours, theirs = self.rng.choice(self.held)
        verb = self.rng.choice(("nack", "release", "extend"))
        if verb == "extend":
            seconds = self.rng.choice((1, 30, 31))
            assert ours.extend_visibility(seconds) == theirs.extend_visibility(seconds)
        else:
            delay = {"visibility_timeout": self.rng.choice((0, 5))} if verb == "nack" else {}
            assert getattr(ours, verb)(**delay) == getattr(theirs, verb)(**delay)

    def park(self) -> None:
        count, timeout = self.rng.choice((1, 3)), self.rng.choice((SECOND, 30 * SECOND))
        pair = Parked(count, timeout, gone=False), Parked(count, timeout, gone=False)
        self.parked.append(pair)
        for box, waiter in zip((self.quick, self.slow), pair, strict=True):
            box._session.enter(waiter)

    def jump(self) -> None:
        self.clock.advance(self.rng.choice((0.000_000_001, 0.5, 7, 31)))

    def _both(self, quick: Callable[[], object], slow: Callable[[], object]) -> None:
        answers = []
        for call in (quick, slow):
            try:
                call()
                answers.append("sent")
            except Exception as error:  # noqa: BLE001  # whatever it is, both must say it
                answers.append(str(error))
        assert answers[0] == answers[1]


def shown(message: Any) -> tuple[Any, ...]:
    details = message.enqueued_at, message.priority, message.attributes
    return message.body, message.delivery_count, *details


@pytest.mark.parametrize("seed", range(25))
def test_R50_the_quick_verbs_leave_the_queue_as_the_general_ones_do(seed: int) -> None:
    twins = Twins(seed)
    for _ in range(STEPS):
        twins.step()
    if twins.quick._session.plain and not twins.special:
        assert twins.seen["received"] - twins.seen["general"] > STEPS / 20


def test_R15_a_quick_acknowledge_ends_with_the_lease() -> None:
    clock = FakeClock()
    box = InMemoryMailbox("jobs", str, clock=clock)
    box.send("a")
    box.receive(visibility_timeout=30)[0].nack()
    (message,) = box.receive()
    assert type(message) is MemoryMessage
    clock.advance(30)

    assert not message.acknowledge()
    assert box.stats().ready == 1


def test_R50_an_index_of_what_is_in_flight_ends_the_quick_way_and_nothing_else() -> None:
    box = InMemoryMailbox("jobs", str)
    box.send_many(["a", "b", "c"])
    first, second = box.receive(max_messages=2)
    leases = box._session.queue.leases

    assert leases.find(first._delivery.record.key) is first._delivery
    (third,) = box.receive()
    assert leases.find(third._delivery.record.key) is third._delivery
    assert [m.acknowledge() for m in (second, third, first, first)] == [True, True, True, False]
    assert (box.approximate_count(), leases.find(first._delivery.record.key)) == (0, None)


def test_R6_what_was_acknowledged_behind_a_held_message_is_forgotten() -> None:
    box = InMemoryMailbox("jobs", str)
    box.send("held")
    (held,) = box.receive()
    for _ in range(1_000):
        box.send("a")
        assert box.receive()[0].acknowledge()

    (line,) = box._session.queue.leases.lines.values()
    assert len(line) < 100
    assert held.acknowledge()
    assert box.approximate_count() == 0


def test_R9_the_twin_for_asyncio_takes_the_quick_way_too() -> None:
    async def case() -> None:
        box = AsyncInMemoryMailbox("jobs", str)
        await box.send("a")
        await box.send("b", priority=3)
        for expected in ("b", "a"):
            (message,) = await box.receive(wait_time_seconds=1)
            assert type(message) is AsyncMemoryMessage
            assert message.body == expected
            assert await message.acknowledge()
            assert not await message.acknowledge()
            with pytest.raises(ReceiptHandleExpiredError, match="acknowledge"):
                await message.acknowledge(strict=True)
        assert not await box.receive()

    asyncio.run(case())


@pytest.mark.parametrize("wait", [-1, 1e9, True, "1", None])
def test_R22_a_bad_time_to_wait_is_refused_even_when_a_message_is_there(wait: Any) -> None:
    box = InMemoryMailbox("jobs", str)
    box.send("a")
    with pytest.raises(ValueError, match="wait_time_seconds"):
        box.receive(wait_time_seconds=wait)
    assert box.stats().in_flight == 0
