"""Buses on a fake clock that is moved through every deadline, in memory and across restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from math import ceil
from typing import Any

from pillarbox.bus import Envelope, MessageBus, SendResult
from pillarbox.testing import FakeClock
from pillarbox.testing.disk import SimDisk

NAMES = ("ada", "bob", "cyd")
SECOND_NS = 10**9


class Clock(FakeClock):
    """Moved to exact nanoseconds, however far away."""

    def go_to(self, at_ns: int) -> None:
        seconds, rest = divmod(at_ns - self.now(), SECOND_NS)
        self.advance(seconds)
        self.advance(rest / SECOND_NS)
        assert self.now() == at_ns


def due_after(now: int, delay_ms: Any) -> int:
    """When a delay from now is over, to the nanosecond, and not before."""
    return now + max(0, ceil(Fraction(repr(delay_ms)) * 10**6))


@dataclass
class Sent:
    """What the test knows of a message; `due` is worked out from the contract."""

    number: int
    to: str
    sent_at: int
    due: int
    result: SendResult
    looks_before: int
    cancelled: bool = False


@dataclass
class Seen:
    """A message that was received, and when."""

    envelope: Envelope
    at: int


@dataclass
class World:
    """A bus in memory, and what happened on it."""

    kind: type[MessageBus] = MessageBus
    clock: Clock = field(default_factory=Clock)
    sent: dict[int, Sent] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = count()
        self.bus = self.open()

    def open(self) -> MessageBus:
        return self.kind(*NAMES, clock=self.clock)

    def restart(self, how: str) -> None:
        """Nothing in memory survives one."""

    def send(self, to: str, delay_ms: Any = 0) -> Sent:
        number, now = next(self._numbers), self.clock.now()
        due = due_after(now, delay_ms)
        result = self.bus.send(to=to, sender="me", payload=number, delay_ms=delay_ms)
        self.sent[number] = Sent(number, to, now, due, result, len(self.looks))
        return self.sent[number]

    def look(self) -> list[Seen]:
        """Deliver what is due, and receive all that can be received."""
        self.bus.deliver_due_messages()
        now = self.clock.now()
        self.looks.append(now)
        found = [Seen(envelope, now) for name in NAMES for envelope in self.bus.drain(name)]
        self.seen += found
        return found

    def walk(self, restart: str | None = None) -> None:
        """Through every deadline: just before it and at it, to the last."""
        self.look()
        while later := sorted({m.due for m in self.sent.values() if m.due > self.clock.now()}):
            if restart is not None:
                self.restart(restart)
            self.clock.go_to(later[0] - 1)
            self.look()
            self.clock.go_to(later[0])
            self.look()

    def seen_numbers(self) -> list[int]:
        return [seen.envelope.payload for seen in self.seen]


@dataclass
class DurableWorld(World):
    """A bus on a simulated disk: it is closed, killed or loses power, and opened again."""

    disk: SimDisk = field(default_factory=SimDisk)

    def open(self) -> MessageBus:
        return self.kind.open("data", *NAMES, clock=self.clock, disk=self.disk, segment_bytes=16384)

    def restart(self, how: str) -> None:
        if how == "close":
            self.bus.close()
        elif how == "kill":
            self.disk = self.disk.kill()
        else:
            self.disk = self.disk.crash(lambda choices: 0)
        self.bus = self.open()


Make = Callable[[], World]
