"""Messages in flight, by the deadline of their leases.

Leases of the same timeout run out in the order in which they were given, so each common
timeout has a line: adding one is an append. A lease that ends stays in its line until it is at
the head or such are the majority, so ending is O(1) and a line is never more than twice what
lives. Deadlines out of order (a lease that was extended, timeouts past the first few) share a
heap. An index by key is made when it is first asked for: mailboxes in memory never ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import chain, islice, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from pillarbox.core.timers import Timers

if TYPE_CHECKING:
    from pillarbox.core.queue import Lease

_LINES_MAX = 8
STALE_MAX = 64  # ended leases that are never worth a sweep
_key_of = attrgetter("record.key")
UNUSUAL = -1  # the timeout noted on a lease that stands in no line


class Leases:
    """Leases by deadline, and by the key of their message.

    `lines` (by timeout) is open to the hot path, which may append to a line and take an ended
    lease from its head or count it as `stale`, and to nobody else. It is empty while there is an
    index to keep. What stands in no line is `unusual`, by key.
    """

    __slots__ = ("_by_key", "_found", "_lines", "_timers", "lines", "stale", "unusual")

    def __init__(self) -> None:
        self.lines: dict[int, deque[Lease]] = {}
        self._lines = self.lines
        self.stale = 0  # leases in the lines that have ended, or stand elsewhere by now
        self.unusual: dict[int, Lease] = {}
        self._timers = Timers()  # of the unusual ones
        self._by_key: dict[int, Lease] | None = None
        self._found: tuple[Lease, ...] = ()  # those in no line, while lines are made anew

    def __len__(self) -> int:
        return sum(map(len, self._lines.values())) - self.stale + len(self.unusual)

    def __iter__(self) -> Iterator[Lease]:
        for line in self._lines.values():
            yield from filter(_stands, line)
        yield from self.unusual.values()

    def entries(self) -> tuple[list[Lease], list[Lease]]:
        """All that stands in a line, what is over too, and the unusual ones, copied in C."""
        return list(chain.from_iterable(self._lines.values())), list(self.unusual.values())

    def soonest(self) -> Iterator[Lease]:
        """Those that run out first come first."""
        unusual = (self.unusual[key] for _, key, _ in self._timers.soonest())
        lines = (filter(_stands, line) for line in self._lines.values())
        return merge(*lines, unusual, key=attrgetter("deadline"))

    def add(self, lease: Lease) -> None:
        self.add_all((lease,))

    def add_all(self, leases: Sequence[Lease]) -> None:
        """Leases of one timeout, which run out no sooner than those of this timeout before."""
        timeout = leases[0].timeout
        line = self._lines.get(timeout)
        if line is None and timeout != UNUSUAL:
            line = self._open_line(timeout)
        if line is not None:
            self._join(line, leases if len(leases) == 1 else sorted(leases, key=_key_of))
        else:
            for lease in leases:
                self._add_unusual(lease)
        if self._by_key is not None:
            self._by_key.update((lease.record.key, lease) for lease in leases)

    def end(self, leases: Sequence[Lease]) -> None:
        """These leases are over."""
        for lease in leases:
            lease.deadline = 0
        self.stale += len(leases)
        if self.unusual:
            for lease in leases:
                if lease.timeout == UNUSUAL:
                    del self.unusual[lease.record.key]
                    self._timers.remove(lease.record.key)
                    self.stale -= 1
        if self._by_key is not None:
            for lease in leases:
                del self._by_key[lease.record.key]
        self.tidy()

    def extend(self, lease: Lease, deadline: int) -> None:
        """It runs out at another time, and so it leaves its line."""
        if lease.timeout == UNUSUAL:
            self._timers.remove(lease.record.key)
        else:
            self.stale += 1
        lease.deadline = deadline
        self._add_unusual(lease)
        self.tidy()

    def tidy(self) -> None:
        """Forget what has ended at the head of the lines, or anywhere if there is much of it.

        The hot path calls this, too: the count is right wherever a signal handler may raise.
        """
        lines = self._lines
        if self.stale > STALE_MAX and self.stale > STALE_MAX + len(self) - len(self.unusual):
            for timeout, line in list(lines.items()):
                living = deque(filter(_stands, line))
                ended = len(line) - len(living)
                lines[timeout] = living
                self.stale -= ended
        elif self.stale:
            for line in lines.values():
                while line and (line[0].deadline == 0 or line[0].timeout == UNUSUAL):
                    self.stale -= 1
                    line.popleft()

    def rebuild(self, gone: Container[int]) -> None:
        """Make everything anew, without the leases on these: an interrupt left it unfinished."""
        lines = (*self.lines.values(), *self._lines.values(), self.unusual.values(), self._found)
        found = {lease.record.key: lease for line in lines for lease in line if lease.deadline}
        indexed = self._by_key is not None
        for lease in (self._by_key or {}).values():
            found[lease.record.key] = lease
        self._found = tuple(found.values())  # for the next try, should this one be interrupted
        self.lines.clear()
        self._lines, self._by_key = self.lines, None
        self.stale, self.unusual, self._timers = 0, {}, Timers()
        for lease in sorted(found.values(), key=attrgetter("deadline")):
            if lease.record.key not in gone:
                self.add(lease)
        if indexed:
            self.find(0)
        self._found = ()

    def clear(self) -> None:
        """End all of them, and start anew."""
        for lease in self:
            lease.deadline = 0
        self.lines.clear()
        self._lines = self.lines
        self.stale = 0
        self.unusual = {}
        self._timers = Timers()
        self._by_key = None

    def find(self, key: int) -> Lease | None:
        """The lease on this message; from now on there is an index."""
        if self._by_key is None:
            index = {lease.record.key: lease for lease in self}
            lines = dict(self.lines)
            self._lines, self._by_key = lines, index
            self.lines.clear()
        return self._by_key.get(key)

    def among(self, keys: Collection[int]) -> dict[int, Lease]:
        """The leases on these messages; without an index all have to be looked at."""
        known = self._by_key
        if known is None:
            return {lease.record.key: lease for lease in self if lease.record.key in keys}
        return {key: known[key] for key in keys if key in known}

    def first_deadline(self) -> int | None:
        self.tidy()
        deadlines = [line[0].deadline for line in self._lines.values() if line]
        unusual = self._timers.first()
        if unusual is not None:
            deadlines.append(unusual)
        return min(deadlines, default=None)

    def expired(self, now: int, most: int | None = None) -> list[Lease]:
        """Those whose deadline has come, in no order; nothing is taken out.

        With `most`, all that may be among the first so many.
        """
        found = [self.unusual[key] for _, key, _ in self._timers.due(now, most)]
        for line in self._lines.values():
            due = takewhile(lambda lease: lease.deadline <= now, filter(_stands, line))
            found += islice(due, most)
        return found

    def _join(self, line: deque[Lease], leases: Sequence[Lease]) -> None:
        """To the end of a line; those that were given at the same time stand in order of keys."""
        first = leases[0]
        if line and line[-1].leased_at == first.leased_at and _key_of(line[-1]) > _key_of(first):
            alike = list(takewhile(partial(_given_at, first.leased_at), reversed(line)))
            before = self._found
            self._found = (*before, *alike)
            for _ in alike:
                line.pop()
            line.extend(sorted([*alike, *leases], key=_key_of))
            self._found = before
        else:
            line.extend(leases)

    def _add_unusual(self, lease: Lease) -> None:
        lease.timeout = UNUSUAL
        self.unusual[lease.record.key] = lease
        self._timers.add(lease.deadline, lease.record)

    def _open_line(self, timeout: int) -> deque[Lease] | None:
        """A line for this timeout, in the place of an empty one if there are too many."""
        if len(self._lines) >= _LINES_MAX:
            self.tidy()
            idle = next((other for other, line in self._lines.items() if not line), None)
            if idle is None:
                return None
            del self._lines[idle]
        line = self._lines[timeout] = deque()
        return line


def _given_at(time: int, lease: Lease) -> bool:
    return lease.leased_at == time


def _stands(lease: Lease) -> bool:
    """Whether a lease is where its line has it."""
    return lease.deadline != 0 and lease.timeout != UNUSUAL
