"""The same queue in memory and on another backend: both must answer the same.

Both have a clock that stands still until the test moves it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pillarbox import DeadLetterPolicy, Mailbox
from pillarbox.core import fair as fair_rule
from pillarbox.testing.contract import Backend, MemoryBackend

HELD_MIN, SHARE = 2, 3  # a tenant is noisy that holds so many, and more than one in so many
MESSAGES_MAX = 90  # of those that are due, Redis and PostgreSQL settle 100 at a time


class Twins:
    """The same queue twice, and what its messages are held by."""

    def __init__(self, seed: int, backend: Backend, *, fair: bool) -> None:
        self.random = random.Random(seed)
        self.backends = [MemoryBackend(), backend]
        redelivery = "original" if fair else self.random.choice(["tail", "original"])
        tenants = [[None, "a", "b", "c"], [None, "a", "a", "a", "a", "b", "c", "d"]]
        groups = tenants if fair else [[None], [None, None, "a", "b"]]
        self.groups: list[str | None] = self.random.choice(groups)
        # What keeps its place may be before or behind a group that has just lined up: that is not
        # promised, so each has priorities of its own.
        self.apart = redelivery == "original" and not fair
        # What is redriven together has one place in memory: that shows in groups, and where
        # messages keep their places. Which of them goes first is not promised.
        self.redrives_at_once = redelivery == "tail" and self.groups == [None]
        policy = self.random.choice([None, DeadLetterPolicy(2)])
        self.boxes: list[Mailbox[int]] = [
            backend.open(
                int, dead_letters=policy, redelivery=redelivery, **({"fair": True} if fair else {})
            )
            for backend in self.backends
        ]
        self.held: list[tuple[Any, Any]] = []
        self.number = 0
        self.log = [f"{fair=}, redelivery={redelivery}, groups={self.groups}, {policy}"]

    def both(self, what: str, verb: Any) -> list[Any]:
        """Ask both; they must say the same."""
        answers = [verb(box) for box in self.boxes]
        self.log.append(f"{what}: {answers}")
        assert answers[0] == answers[1], self.story()
        return answers

    def story(self) -> str:
        return "\n".join([self.log[0], *self.log[1:][-40:]])

    def send(self) -> None:
        stats = self.boxes[0].stats()
        if stats.total + stats.dead > MESSAGES_MAX:
            return
        count = self.random.choice([1, 1, 3])
        numbers = list(range(self.number, self.number + count))
        self.number += count
        group = self.random.choice(self.groups)
        priorities = [7, 7, 8, 254] if self.apart and group is not None else [0, 0, 1, 255]
        options: dict[str, Any] = {
            "priority": self.random.choice(priorities),
            "delay_seconds": self.random.choice([0, 0, 2, 5]),
            "group": group,
        }
        self.both(f"send {numbers} {options}", lambda b: len(b.send_many(numbers, **options)))

    def receive(self) -> None:
        count, timeout = self.random.choice([1, 2, 5]), self.random.choice([2, 7])
        taken = [box.receive(max_messages=count, visibility_timeout=timeout) for box in self.boxes]
        told = [[(m.body, m.delivery_count, m.priority, m.group) for m in part] for part in taken]
        self.log.append(f"receive {count} for {timeout}: {told}")
        assert told[0] == told[1], self.story()
        self.held += zip(*taken, strict=True)

    def settle(self) -> None:
        if not self.held:
            return
        pair = self.random.choice(self.held)
        verb = self.random.choice(["ack", "ack", "nack", "later", "extend", "release", "reject"])
        act = {
            "ack": lambda m: m.acknowledge(),
            "nack": lambda m: m.nack(),
            "later": lambda m: m.nack(visibility_timeout=3),
            "extend": lambda m: m.extend_visibility(4),
            "release": lambda m: m.release(),
            "reject": lambda m: m.reject("no good"),
        }[verb]
        answers = [act(message) for message in pair]
        self.log.append(f"{verb} {pair[0].body}: {answers}")
        assert answers[0] == answers[1], self.story()

    def pass_time(self) -> None:
        seconds = self.random.choice([1, 1, 3])
        self.log.append(f"pass {seconds}")
        for backend in self.backends:
            backend.pass_time(seconds)
        self.boxes[0].stats()  # a receive lets 20 of what is due happen, and a look all of it

    def look(self) -> None:
        self.both("stats", _counts)
        for state in ("ready", "scheduled", "in_flight"):
            self.both(f"peek {state}", lambda b, s=state: sorted(_bodies(b, s)))
        if self.boxes[0].dead_letters is not None:
            # In one moment, and one group, memory has the older first, and others who died first.
            order = sorted if len(self.groups) > 1 else list
            self.both("dead", lambda b: order(_bodies(b.dead_letters, "ready")))

    def delete(self) -> None:
        ready = _bodies(self.boxes[0], "ready")
        if ready:
            body = self.random.choice(ready)
            self.both(f"delete {body}", lambda b: b.delete(_ids(b, body)))

    def redrive(self) -> None:
        if self.boxes[0].dead_letters is None:
            return
        if self.redrives_at_once:
            self._redrive("all", lambda b: None)
        for body in sorted(_bodies(self.boxes[0].dead_letters, "ready")):
            self._redrive(body, lambda b, one=body: _ids(b.dead_letters, one))

    def _redrive(self, what: object, ids: Any) -> None:
        for backend in self.backends:  # in memory the moment of a redrive is its place in line
            backend.pass_time(0.001)
        self.both(f"redrive {what}", lambda b: b.dead_letters.redrive(ids(b)))

    def close(self) -> None:
        for backend in self.backends:
            backend.close()


def _counts(box: Mailbox[int]) -> tuple[int, ...]:
    stats = box.stats()
    return stats.ready, stats.scheduled, stats.in_flight, stats.dead


def _bodies(box: Any, state: Any) -> list[int]:
    return [message.body for message in box.peek(1_000, state=state)]


def _ids(box: Any, body: int) -> list[str]:
    return [message.id for message in box.peek(1_000) if message.body == body]


def walk(seed: int, steps: int, backend: Backend, *, fair: bool = False) -> None:
    """Random steps on both; a seed that finds a difference is printed, and replays it."""
    twins = Twins(seed, backend, fair=fair)
    verbs = [*["send"] * 4, *["receive"] * 5, *["settle"] * 6, *["pass_time"] * 3]
    verbs += ["look", "look", "delete", "redrive"]
    try:
        for _ in range(steps):
            getattr(twins, twins.random.choice(verbs))()
    except AssertionError:
        print(f"seed {seed}")
        raise
    finally:
        twins.close()


def walk_fair(
    seeds: range,
    steps: int,
    backend: Callable[[], Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    alike: bool = True,
) -> None:
    """In fair queues. Unless both follow the same rule (`alike`), they must not be the same."""
    monkeypatch.setattr(fair_rule, "NOISY_HELD_MIN", HELD_MIN)
    monkeypatch.setattr(fair_rule, "NOISY_SHARE", SHARE)
    for seed in seeds:
        other = backend()
        if alike:
            other.call_noisy(HELD_MIN, SHARE)
        walk(seed, steps, other, fair=True)
