"""The low-water mark of a queue: below it, as far as this mailbox knows, nothing is ready.

The index entries of messages that are gone stay until a vacuum, and with an old snapshot open even
longer. A claim that starts at the mark does not walk them. What turns up below it all the same (a
late commit, a claim that was rolled back) is found by a look at everything, now and then: those
looks take at most a twentieth of the time.
"""

from __future__ import annotations

import time

from msgspec import Struct, field

from pillarbox.mailbox.postgres import wire

_PRIORITY_BITS = 55  # a rank is the priority (255 less it) and, below that, the place
_SHARE = 20
_INTERVAL_SECONDS_MAX = 10.0
_QUICK_SECONDS = 0.02


class Start(Struct, gc=False):
    """Where one look begins, and when."""

    whole: bool
    marks: str
    rewinds: int
    since: int
    at: float = field(default_factory=time.monotonic)


class LowWater:
    """What one mailbox object knows. Threads share it: an older mark is only a slower one."""

    def __init__(self) -> None:
        self._marks: dict[int, int] = {}  # by priority, as a rank has it
        self._rewinds = -1
        self._whole_at = 0.0
        self._took = 0.0  # the last look at everything, in seconds
        self.since = 0  # everything due before this has happened

    def start(self, *, parking: bool = False) -> Start:
        """Where to begin now: at the marks, or at the very beginning.

        Who is about to wait looks at everything, if that is quick: it need not get up for it then.
        """
        if time.monotonic() >= self._whole_at or (parking and self._took < _QUICK_SECONDS):
            return Start(True, "{}", -1, 0)
        return Start(False, wire.array(sorted(self._marks.values())), self._rewinds, self.since)

    def learn(self, start: Start, ranks: list[int], rewinds: int, since: int) -> None:
        """What a look found."""
        found: dict[int, int] = {}
        for rank in ranks:
            priority = rank >> _PRIORITY_BITS
            found[priority] = max(rank + 1, found.get(priority, 0))
        self.since = since
        if rewinds != self._rewinds:  # then the look was at everything, down to the last it found
            last = max(found, default=1 << 8)
            self._marks = {p: mark for p, mark in self._marks.items() if p <= last}
            self._rewinds = rewinds
        elif not start.whole:
            found = {p: max(mark, self._marks.get(p, 0)) for p, mark in found.items()}
        if start.whole:
            self._took = time.monotonic() - start.at
            self._whole_at = time.monotonic() + min(_SHARE * self._took, _INTERVAL_SECONDS_MAX)
        self._marks |= found

    def seconds_to_whole(self) -> float:
        """In how many seconds the next look at everything is due."""
        return max(0.0, self._whole_at - time.monotonic())
