"""Messages in flight, by the deadline of their leases.

Leases of the same timeout expire in the order they were granted, so each common timeout has its own
deque: adding a lease is an append. An ended lease stays there until it is at the head or ended ones
are the majority, so ending is O(1), and a deque is at most twice the number of live leases.
Deadlines out of order (extended leases, uncommon timeouts) share a heap. The index by key is built
on first use: mailboxes in memory never need it.
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
STALE_MAX = 64  # do not sweep fewer ended leases than this
_key_of = attrgetter("record.key")
UNUSUAL = -1  # timeout of a lease that is in the heap


class Leases:
    """Leases by deadline, and by the key of their message.

    `lines` (deques by timeout) may be used by the hot path only, which appends to a line, and
    removes an ended lease from its head or counts it as `stale`. It is empty while an index is
    kept. Leases in the heap are `unusual`, by key.
    """

    __slots__ = ("_by_key", "_lines", "_timers", "_unlined", "lines", "stale", "unusual")

    def __init__(self) -> None:
        self.lines: dict[int, deque[Lease]] = {}
        self._lines = self.lines
        self.stale = 0  # leases in the lines that have ended or moved to the heap
        self.unusual: dict[int, Lease] = {}
        self._timers = Timers()  # of the unusual leases
        self._by_key: dict[int, Lease] | None = None
        self._unlined: tuple[Lease, ...] = ()  # leases in no line, during a rebuild

    def __len__(self) -> int:
        return sum(map(len, self._lines.values())) - self.stale + len(self.unusual)

    def __iter__(self) -> Iterator[Lease]:
        for line in self._lines.values():
            yield from filter(_is_in_line, line)
        yield from self.unusual.values()

    def entries(self) -> tuple[list[Lease], list[Lease]]:
        """Return all leases in lines, including ended ones, and the unusual ones, copied in C."""
        return list(chain.from_iterable(self._lines.values())), list(self.unusual.values())

    def soonest(self) -> Iterator[Lease]:
        """Yield the leases by deadline, earliest first."""
        unusual = (self.unusual[key] for _, key, _ in self._timers.soonest())
        lines = (filter(_is_in_line, line) for line in self._lines.values())
        return merge(*lines, unusual, key=attrgetter("deadline"))

    def add(self, lease: Lease) -> None:
        self.add_all((lease,))

    def add_all(self, leases: Sequence[Lease]) -> None:
        """Add leases of one timeout, with deadlines no earlier than those before."""
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
        """End these leases."""
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
        """Set a new deadline; the lease moves from its line to the heap."""
        if lease.timeout == UNUSUAL:
            self._timers.remove(lease.record.key)
        else:
            self.stale += 1
        lease.deadline = deadline
        self._add_unusual(lease)
        self.tidy()

    def tidy(self) -> None:
        """Remove ended leases at the head of the lines, or everywhere if they are many.

        The hot path calls this, too: the count is correct wherever a signal handler may raise.
        """
        lines = self._lines
        if self.stale > STALE_MAX and self.stale > STALE_MAX + len(self) - len(self.unusual):
            for timeout, line in list(lines.items()):
                # `_is_in_line`, without a call for each
                living = deque([each for each in line if each.deadline and each.timeout != UNUSUAL])
                ended = len(line) - len(living)
                lines[timeout] = living
                self.stale -= ended
        elif self.stale:
            for line in lines.values():
                while line and (line[0].deadline == 0 or line[0].timeout == UNUSUAL):
                    self.stale -= 1
                    line.popleft()

    def rebuild(self, gone: Container[int]) -> None:
        """Rebuild everything after an interrupt, without the leases on these messages."""
        lines = (*self.lines.values(), *self._lines.values(), self.unusual.values(), self._unlined)
        found = {lease.record.key: lease for line in lines for lease in line if lease.deadline}
        indexed = self._by_key is not None
        for lease in (self._by_key or {}).values():
            found[lease.record.key] = lease
        self._unlined = tuple(found.values())  # for another rebuild if this one is interrupted
        self.lines.clear()
        self._lines, self._by_key = self.lines, None
        self.stale, self.unusual, self._timers = 0, {}, Timers()
        for lease in sorted(found.values(), key=attrgetter("deadline")):
            if lease.record.key not in gone:
                self.add(lease)
        if indexed:
            self.find(0)
        self._unlined = ()

    def clear(self) -> None:
        """End all leases and start empty."""
        for lease in self:
            lease.deadline = 0
        self.lines.clear()
        self._lines = self.lines
        self.stale = 0
        self.unusual = {}
        self._timers = Timers()
        self._by_key = None

    def find(self, key: int) -> Lease | None:
        """Return the lease on this message; builds the index on first use."""
        if self._by_key is None:
            index = {lease.record.key: lease for lease in self}
            lines = dict(self.lines)
            self._lines, self._by_key = lines, index
            self.lines.clear()
        return self._by_key.get(key)

    def among(self, keys: Collection[int]) -> dict[int, Lease]:
        """Return the leases on these messages; scans all leases if there is no index."""
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
        """Return the expired leases, unordered, without removing them.

        With `most`, return at least all that may be among the first `most`.
        """
        found = [self.unusual[key] for _, key, _ in self._timers.due(now, most)]
        for line in self._lines.values():
            due = takewhile(lambda lease: lease.deadline <= now, filter(_is_in_line, line))
            found += islice(due, most)
        return found

    def _join(self, line: deque[Lease], leases: Sequence[Lease]) -> None:
        """Append to a line; leases granted at the same time are ordered by key."""
        first = leases[0]
        if line and line[-1].leased_at == first.leased_at and _key_of(line[-1]) > _key_of(first):
            alike = list(takewhile(partial(_given_at, first.leased_at), reversed(line)))
            before = self._unlined
            self._unlined = (*before, *alike)
            for _ in alike:
                line.pop()
            line.extend(sorted([*alike, *leases], key=_key_of))
            self._unlined = before
        else:
            line.extend(leases)

    def _add_unusual(self, lease: Lease) -> None:
        lease.timeout = UNUSUAL
        self.unusual[lease.record.key] = lease
        self._timers.add(lease.deadline, lease.record)

    def _open_line(self, timeout: int) -> deque[Lease] | None:
        """Return a line for this timeout; reuse an empty one if there are too many."""
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


def _is_in_line(lease: Lease) -> bool:
    """Return whether a lease in a line is live and has not moved to the heap."""
    return lease.deadline != 0 and lease.timeout != UNUSUAL
