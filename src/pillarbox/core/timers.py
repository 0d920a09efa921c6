"""Records by due time: a heap ordered by time, then by key.

A removed entry stays in the heap until it is due or until removed entries are the majority, so
removing is O(1), and the heap is at most twice the number of live entries.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pillarbox.core.queue import Record

    Entry = tuple[int, int, Record]  # time, key, record: keys are unique, so entries sort

_SLACK = 64  # do not sweep fewer stale entries than this


class Timers:
    """Timers with at most one time per record."""

    __slots__ = ("_heap", "_live")

    def __init__(self) -> None:
        self._live: dict[int, Entry] = {}
        self._heap: list[Entry] = []

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Entry]:
        """Yield all entries by time."""
        return iter(sorted(self._live.values()))

    def entries(self) -> list[Entry]:
        """Return all entries, unordered, copied in C."""
        return list(self._live.values())

    def keys(self) -> Iterable[int]:
        """Return the keys of all records, unordered."""
        return self._live.keys()

    def soonest(self) -> Iterator[Entry]:
        """Yield all entries by time lazily, for callers that want the first few of many."""
        heap = self._heap
        found = [(heap[0], 0)] if heap else []
        while found:
            entry, at = heappop(found)
            if self._live.get(entry[1]) is entry:
                yield entry
            for branch in range(2 * at + 1, min(2 * at + 3, len(heap))):
                heappush(found, (heap[branch], branch))

    def add(self, at: int, record: Record) -> None:
        entry = (at, record.key, record)
        self._live[record.key] = entry
        heappush(self._heap, entry)

    def remove(self, key: int) -> None:
        del self._live[key]
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            heap = list(self._live.values())
            heapify(heap)
            self._heap = heap

    def rebuild(self, gone: Container[int]) -> None:
        """Rebuild the heap after an interrupt, without these keys."""
        live = {key: entry for key, entry in self._live.items() if key not in gone}
        heap = list(live.values())
        heapify(heap)
        self._live, self._heap = live, heap

    def find(self, key: int) -> Record | None:
        entry = self._live.get(key)
        return entry and entry[2]

    def first(self) -> int | None:
        """Return the earliest time."""
        heap = self._heap
        while heap and self._live.get(heap[0][1]) is not heap[0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: int, most: int | None = None) -> list[Entry]:
        """Return the due entries in order: all of them, or the first `most`."""
        return list(islice(takewhile(lambda entry: entry[0] <= now, self.soonest()), most))
