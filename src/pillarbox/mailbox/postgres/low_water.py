"""The low-water mark of a queue: below it, this mailbox knows of no ready message.

Index entries of deleted messages remain until a vacuum, and longer while an old snapshot is open. A
claim that starts at the mark does not scan them. Messages that still appear below it (a late
commit, a claim that was rolled back) are found by occasional full scans, which take at most a
twentieth of the time.
"""

from __future__ import annotations

import time

from msgspec import Struct, field

from pillarbox.mailbox.postgres import wire

_PRIORITY_BITS = 55  # a rank is 255 - priority in the high bits, then the place
_SHARE = 20
_INTERVAL_SECONDS_MAX = 10.0
_QUICK_SECONDS = 0.02


class Start(Struct, gc=False):
    """Where a scan starts, and when."""

    whole: bool
    marks: str
    rewinds: int
    since: int
    at: float = field(default_factory=time.monotonic)


class LowWater:
    """The marks of one mailbox object. Threads share it: an outdated mark is only slower."""

    def __init__(self) -> None:
        self._marks: dict[int, int] = {}  # by priority, as encoded in a rank
        self._rewinds = -1
        self._whole_at = 0.0
        self._took = 0.0  # duration of the last full scan, in seconds
        self.since = 0  # everything due before this is settled

    def start(self, *, parking: bool = False) -> Start:
        """Return where to start: at the marks, or at the beginning for a full scan.

        A receiver that is about to wait makes a full scan if that is quick, so it need not wake for
        one.
        """
        if time.monotonic() >= self._whole_at or (parking and self._took < _QUICK_SECONDS):
            return Start(True, "{}", -1, 0)
        return Start(False, wire.array(sorted(self._marks.values())), self._rewinds, self.since)

    def learn(self, start: Start, ranks: list[int], rewinds: int, since: int) -> None:
        """Update the marks from the result of a scan."""
        found: dict[int, int] = {}
        for rank in ranks:
            priority = rank >> _PRIORITY_BITS
            found[priority] = max(rank + 1, found.get(priority, 0))
        self.since = since
        if rewinds != self._rewinds:  # then it was a full scan, up to the last message found
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
        """Return the seconds until the next full scan is due."""
        return max(0.0, self._whole_at - time.monotonic())
