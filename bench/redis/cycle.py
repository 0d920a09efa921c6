"""The full cycle (send, receive, acknowledge), one at a time and in batches.

One at a time the target is against peers that lease, as Pillarbox does: the others promise less,
and are shown beside it. In batches it is against the fastest of all, which have no batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.harness import Contender, Race, Run, Sized, Versus, VersusBest
from bench.mailboxes import repeat
from bench.redis.contestants import PEERS, PILLARBOX, RAW, Contestant

_ALL = tuple(each.name for each in PEERS)
_LEASING = tuple(each.name for each in PEERS if each.leases)
_PEER_MESSAGES = 1_000  # they are slow, and it makes no difference to them


def _contender(
    contestant: Contestant, size: int, messages: int, *versus: Versus | VersusBest
) -> Contender:
    @contextmanager
    def prepare() -> Iterator[Run]:
        with contestant.opened() as cycle:
            yield partial(repeat, cycle, size)

    return Contender(contestant.name, prepare, messages, versus, contestant.lacks)


def _race(
    name: str,
    size: int,
    messages: int,
    sized: Sized,
    *,
    of_leasing: float | None = None,
    of_all: float | None = None,
) -> Race:
    versus = (
        VersusBest("best that leases", _LEASING, speed_at_least=of_leasing),
        VersusBest("best of all", _ALL, speed_at_least=of_all),
        Versus(RAW.name),
    )
    few = _whole(sized(_PEER_MESSAGES), size)
    messages = _whole(sized(messages), size)
    return Race(
        name,
        (
            _contender(PILLARBOX, size, messages, *versus),
            *(_contender(each, size, few) for each in PEERS),
            _contender(RAW, size, messages),
        ),
    )


def _whole(messages: int, size: int) -> int:
    """So many, in whole batches."""
    return max(size, messages // size * size)


def one_at_a_time(sized: Sized) -> Race:
    return _race("full cycle, one at a time", 1, 5_000, sized, of_leasing=1.5)


def in_tens(sized: Sized) -> Race:
    return _race("full cycle, batches of 10", 10, 20_000, sized)


def in_hundreds(sized: Sized) -> Race:
    return _race("full cycle, batches of 100", 100, 50_000, sized, of_all=5)
