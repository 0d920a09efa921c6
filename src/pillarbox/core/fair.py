"""Fair queues: a tenant that holds much of what is in flight waits behind the others.

With `Settings.fair` a group is a tenant, not an order: its messages stand in line by their place
among all the others. One that holds at least 30 messages in flight, and more than a tenth of all,
is noisy: its messages are delivered once nothing else is ready. It is served again as soon as it
holds less, so nobody starves. At most nine tenants can be noisy at once, so few are passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, Final

from pillarbox.core.lane import Position

if TYPE_CHECKING:
    from pillarbox.core.queue import Group, Record

    Line = tuple[Position, Group | None, Iterator[Record]]  # a tenant's, or one message of nobody's
    Next = tuple[Position, Record, Group, Iterator[Record]]  # of a tenant, and the rest of its line

NOISY_HELD_MIN = 30
NOISY_SHARE = 10  # more than one in so many of those in flight
_LAST: Final = (1 << 80, 0)


def is_noisy(held: int, in_flight: int) -> bool:
    return held >= NOISY_HELD_MIN and held * NOISY_SHARE > in_flight


def in_turn(
    lines: Iterable[Line], in_flight: int, place: Callable[[Record], Position]
) -> Iterator[Record]:
    """The messages of these lines, which come in order of place, in the order of delivery."""
    taken: Counter[Group] = Counter()
    quiet: list[Next] = []
    noisy: list[Next] = []
    for at, tenant, rest in chain(lines, ((_LAST, None, iter(())),)):
        while quiet and quiet[0][0] < at:
            first = heappop(quiet)
            if is_noisy(first[2].held + taken[first[2]], in_flight):
                noisy.append(first)
                continue
            taken[first[2]] += 1
            in_flight += 1
            yield _step(quiet, first, place)
        if tenant is not None:
            record = next(rest)
            heappush(quiet, (at, record, tenant, rest))
        else:
            yield from rest
    heapify(noisy)
    while noisy:
        yield _step(noisy, heappop(noisy), place)


def _step(tenants: list[Next], first: Next, place: Callable[[Record], Position]) -> Record:
    """The next message of a tenant, who stands by the following one from now on."""
    _, record, tenant, rest = first
    following = next(rest, None)
    if following is not None:
        heappush(tenants, (place(following), following, tenant, rest))
    return record
