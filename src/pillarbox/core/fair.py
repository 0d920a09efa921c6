"""Fair queues: a tenant with a large share of the messages in flight waits behind the others.

With `Settings.fair` a group is a tenant and keeps no order: its messages are ordered among all
others. A tenant with at least 30 messages in flight, and more than a tenth of all in flight, is
noisy: its messages are delivered when nothing else is ready. It is served again as soon as its
share falls, so no tenant starves. At most nine tenants can be noisy at once, so few are skipped.
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

    Line = tuple[Position, Group | None, Iterator[Record]]  # a tenant's, or one message
    Next = tuple[Position, Record, Group, Iterator[Record]]  # of a tenant, with the rest

NOISY_HELD_MIN = 30
NOISY_SHARE = 10  # more than 1/10 of the messages in flight
_LAST: Final = (1 << 80, 0)


def is_noisy(held: int, in_flight: int) -> bool:
    return held >= NOISY_HELD_MIN and held * NOISY_SHARE > in_flight


def delivery_order(
    lines: Iterable[Line], in_flight: int, place: Callable[[Record], Position]
) -> Iterator[Record]:
    """Yield the messages of these lines, given in order of place, in delivery order."""
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
    """Return a tenant's next message, and queue the tenant by the one after it."""
    _, record, tenant, rest = first
    following = next(rest, None)
    if following is not None:
        heappush(tenants, (place(following), following, tenant, rest))
    return record
