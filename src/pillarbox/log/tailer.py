"""Tailers: positions in a log that move as they read, forward or backward.

`read` returns what is there; `wait` blocks until there is something, the time is up, or another
thread calls `unblock`. A named tailer can save its position across processes. A tailer belongs
to one thread at a time; `unblock` is thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from pillarbox.log.errors import LogIndexError
from pillarbox.log.frame_reader import Frame
from pillarbox.log.positions import Positions

if TYPE_CHECKING:
    from pillarbox.log.readable_log import ReadableLog

#: Only across processes: how often a waiting reader polls the writer's shared memory.
POLL_SECONDS_MIN = 0.0005
POLL_SECONDS_MAX = 0.01


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record with its index and the time it was written."""

    index: int
    time_ns: int
    data: bytes


class Tailer:
    """Reads a log from a position: `index` next, or `index - 1` when reading backward."""

    def __init__(
        self, log: ReadableLog, *, name: str | None = None, positions: Positions | None = None
    ) -> None:
        self.log = log
        self.name = name
        self._positions = positions
        self._backward = False
        self.event = threading.Event()
        self.unblocked = False
        self._ahead: Iterator[Frame] | None = None
        self._buffer: Frame | None = None
        saved = positions.load(name) if positions is not None and name is not None else None
        self.index = log.first_index if saved is None else max(saved, log.first_index)
        if saved is None and name is not None:
            self.save()

    def forward(self) -> Tailer:
        self._backward = False
        return self

    def backward(self) -> Tailer:
        self._backward = True
        return self

    def to_start(self) -> Tailer:
        return self._move(self.log.first_index)

    def to_end(self) -> Tailer:
        self.log.refresh()
        return self._move(self.log.end_index)

    def to_index(self, index: int) -> Tailer:
        """Go to `index`, or to the first index if that is dropped already."""
        self.log.refresh()
        return self._move(max(self.log.first_index, min(index, self.log.end_index)))

    def to_time(self, time_ns: int) -> Tailer:
        """Go to the first record written at or after `time_ns`."""
        self.log.refresh()
        return self._move(self.log.index_at_time(time_ns))

    def _move(self, index: int) -> Tailer:
        self.index = index
        self._ahead = self._buffer = None
        return self

    def peek(self) -> Record | None:
        """Return the next record, without moving."""
        before = self.index
        found = self.read(1)
        self._move(before)
        return found[0] if found else None

    def read(self, max_records: int = 1000) -> list[Record]:
        """Return up to `max_records` that are there now; may be empty."""
        self.log.refresh()
        return self._take(max_records)

    def wait(self, max_records: int = 1000, timeout: float | None = None) -> list[Record]:
        """Like `read`, but waits for records; empty on timeout or `unblock`."""
        if wait_any([self], timeout) is None:
            return []
        return self.read(max_records)

    def unblock(self) -> None:
        """Make the current `wait`, or else the next one, return at once without records."""
        self.unblocked = True
        self.event.set()

    def has_data(self) -> bool:
        if self._backward:
            return self.index > self.log.first_index
        return self.index < self.log.end_index

    def __iter__(self) -> Iterator[Record]:
        """Yield the records that are there now."""
        while found := self.read():
            yield from found

    def _take(self, max_records: int) -> list[Record]:
        if max_records < 1 or not self.has_data():
            return []
        return self._take_back(max_records) if self._backward else self._take_on(max_records)

    def _take_on(self, max_records: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < max_records and (frame := self._frame_ahead()) is not None:
            low = self.index - frame.first_index
            high = low + max_records - len(found)
            time_ns, index = frame.time_ns, self.index
            for data in frame.records[low:high]:
                found.append(Record(index, time_ns, data))
                index += 1
            self.index = index
        return found

    def _frame_ahead(self) -> Frame | None:
        """Return the frame with `index`; None at the end."""
        frame = self._buffer
        if frame is not None and frame.first_index <= self.index < frame.end_index:
            return frame
        for _ in range(2):
            if self._ahead is None:
                # Skip what retention has dropped.
                self.index = max(self.index, self.log.first_index)
                self._ahead = self.log.frames(self.index)
            try:
                frame = next(self._ahead, None)
            except LogIndexError:
                self._ahead = None
                if self.index >= self.log.first_index:
                    raise
                return self._frame_ahead()  # dropped meanwhile
            if frame is not None and frame.end_index > self.index:
                # Skip what a repair could not save, too.
                self.index = max(self.index, frame.first_index)
                self._buffer = frame
                return frame
            self._ahead = None
        return None

    def _take_back(self, max_records: int) -> list[Record]:
        self._ahead = self._buffer = None
        found: list[Record] = []
        while not found and self.has_data():  # skip what a repair could not save
            first = max(self.log.first_index, self.index - max_records)
            try:
                for frame in self.log.frames(first, self.index):
                    for index, data in enumerate(frame.records, frame.first_index):
                        found.append(Record(index, frame.time_ns, data))
                if not found:  # a lost range may be long
                    block = next(self.log.blocks(first, first + 1))
                    lost = next(each for each in block.frames if each.end_index > first)
                    first = lost.first_index
                self.index = first
            except LogIndexError:
                if first >= self.log.first_index:
                    raise
                found.clear()  # dropped meanwhile
        found.reverse()
        return found

    def save(self) -> None:
        """Save the position of a named tailer durably; it no longer needs earlier records."""
        if self._positions is not None and self.name is not None:
            self._positions.save(self.name, self.index)


def alts(
    tailers: Sequence[Tailer], *, max_records: int = 1000, timeout: float | None = None
) -> tuple[Tailer, list[Record]] | None:
    """Wait until one of several tailers has data; earlier ones in the list win.

    None on timeout, or when one of them is unblocked.
    """
    tailer = wait_any(tailers, timeout)
    return None if tailer is None else (tailer, tailer.read(max_records))


def wait_any(tailers: Sequence[Tailer], timeout: float | None = None) -> Tailer | None:
    """Return the first tailer with data; None on timeout or unblock. Polls only other processes."""
    deadline = None if timeout is None else time.monotonic() + timeout
    event = threading.Event()
    polls = any(tailer.log.polls for tailer in tailers)
    pause = POLL_SECONDS_MIN
    for tailer in tailers:
        tailer.event = event
        tailer.log.watchers.add(event)
    try:
        while True:
            event.clear()
            for tailer in tailers:
                tailer.log.refresh()
            for tailer in tailers:
                if tailer.unblocked:
                    tailer.unblocked = False
                    return None
                if tailer.has_data():
                    return tailer
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            if polls:
                left = pause if left is None else min(left, pause)
                pause = min(pause * 1.5, POLL_SECONDS_MAX)
            event.wait(left)
    finally:
        for tailer in tailers:
            tailer.log.watchers.remove(event)
