"""The full cycle (send, receive, acknowledge), one at a time and in batches.

Targets are against peers that acknowledge. Those where a message is gone once it was taken do
less, and are shown for information.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.harness import Contender, Race, Run, Sized, Versus, VersusBest
from bench.redis.contestants import PEERS, PILLARBOX, RAW, Contestant

_EQUALS = tuple(each.name for each in PEERS if each.acknowledges)
_LESSER = tuple(each.name for each in PEERS if not each.acknowledges)


def _contender(
    contestant: Contestant, size: int, messages: int, *versus: Versus | VersusBest
) -> Contender:
    @contextmanager
    def prepare() -> Iterator[Run]:
        with contestant.opened() as cycle:
            yield partial(_repeat, cycle, size)

    return Contender(contestant.name, prepare, messages, versus, contestant.lacks)


def _repeat(cycle: object, size: int, messages: int) -> None:
    assert callable(cycle)
    for _ in range(messages // size):
        cycle(size)


def _race(name: str, size: int, messages: int, least: float | None) -> Race:
    versus = (
        VersusBest("best that acknowledges", _EQUALS, speed_at_least=least),
        VersusBest("best that takes away", _LESSER),
        Versus(RAW.name),
    )
    few = max(size, messages // 5 // size * size)
    return Race(
        name,
        (
            _contender(PILLARBOX, size, messages, *versus),
            *(_contender(each, size, few) for each in PEERS),
            _contender(RAW, size, messages),
        ),
    )


def _messages(sized: Sized, number: int, size: int) -> int:
    return max(size, sized(number) // size * size)


def one_at_a_time(sized: Sized) -> Race:
    return _race("full cycle, one at a time", 1, _messages(sized, 5_000, 1), 1.5)


def in_tens(sized: Sized) -> Race:
    return _race("full cycle, batches of 10", 10, _messages(sized, 20_000, 10), None)


def in_hundreds(sized: Sized) -> Race:
    return _race("full cycle, batches of 100", 100, _messages(sized, 50_000, 100), 5)
