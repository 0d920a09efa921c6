"""Messages in flight, by the deadline of their leases.

Leases of the same timeout run out in the order in which they were given, so each common
timeout has a line: adding and ending a lease is O(1) and leaves nothing behind. Timeouts
past the first few share a heap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pillarbox.core.timers import Timers

if TYPE_CHECKING:
    from pillarbox.core.queue import Lease

_LINES_MAX = 8
UNUSUAL = -1  # the timeout noted on a lease that stands in no line


class Leases:
    """Leases by deadline, and by the key of their message.

    `lines` (timeout -> key -> lease) is open to the hot path, and to nobody else.
    """

    __slots__ = ("_timers", "_unusual", "lines")

    def __init__(self) -> None:
        self.lines: dict[int, OrderedDict[int, Lease]] = {}
        self._unusual: dict[int, Lease] = {}
        self._timers = Timers()  # of the unusual ones

    def __len__(self) -> int:
        return sum(map(len, self.lines.values())) + len(self._unusual)

    def __iter__(self) -> Iterator[Lease]:
        for line in self.lines.values():
            yield from line.values()
        yield from self._unusual.values()

    def add(self, lease: Lease) -> None:
        line = self.lines.get(lease.timeout)
        if line is None and lease.timeout != UNUSUAL:
            line = self._open_line(lease.timeout)
        if line is None:
            lease.timeout = UNUSUAL
            self._unusual[lease.record.key] = lease
            self._timers.add(lease.deadline, lease.record)
        else:
            line[lease.record.key] = lease

    def add_all(self, leases: Sequence[Lease]) -> None:
        """Leases of one timeout."""
        line = self.lines.get(leases[0].timeout)
        if line is None:
            for lease in leases:
                self.add(lease)
        else:
            for lease in leases:  # twice as fast as `update`
                line[lease.record.key] = lease

    def remove(self, lease: Lease) -> None:
        if lease.timeout == UNUSUAL:
            del self._unusual[lease.record.key]
            self._timers.remove(lease.record.key)
        else:
            del self.lines[lease.timeout][lease.record.key]

    def remove_all(self, leases: Sequence[Lease]) -> None:
        """End these; most often they are of one timeout."""
        timeout, line = UNUSUAL, None
        for lease in leases:
            lease.deadline = 0
            if lease.timeout != timeout:
                timeout = lease.timeout
                line = self.lines.get(timeout)
            if line is not None:
                del line[lease.record.key]
            else:
                self.remove(lease)

    def find(self, key: int) -> Lease | None:
        for line in self.lines.values():
            if key in line:
                return line[key]
        return self._unusual.get(key)

    def first_deadline(self) -> int | None:
        deadlines = [next(iter(line.values())).deadline for line in self.lines.values() if line]
        unusual = self._timers.first()
        if unusual is not None:
            deadlines.append(unusual)
        return min(deadlines, default=None)

    def expired(self, now: int) -> list[Lease]:
        """All whose deadline has come, in no order; nothing is taken out."""
        found = [self._unusual[key] for _, key, _ in self._timers.due(now)]
        for line in self.lines.values():
            for lease in line.values():
                if lease.deadline > now:
                    break
                found.append(lease)
        return found

    def _open_line(self, timeout: int) -> OrderedDict[int, Lease] | None:
        """A line for this timeout, in the place of an empty one if there are too many."""
        if len(self.lines) >= _LINES_MAX:
            idle = next((other for other, line in self.lines.items() if not line), None)
            if idle is None:
                return None
            del self.lines[idle]
        line = self.lines[timeout] = OrderedDict()
        return line
