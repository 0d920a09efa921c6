"""Records by the time something happens to them: a heap by time, then by age.

A removed entry stays in the heap until its time comes or until such entries are the
majority, so that removing is O(1) and the heap is never more than twice what lives.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice, repeat, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pillarbox.core.queue import Record

    Entry = tuple[int, int, Record]  # time, key, record: a key has one record, so these sort

_SLACK = 64  # stale entries that are never worth a sweep


class Timers:
    """At most one time for each record."""

    __slots__ = ("_heap", "_latest", "_live")

    def __init__(self) -> None:
        self._live: dict[int, Entry] = {}
        self._heap: list[Entry] = []
        self._latest = -1  # no entry has a later time

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Entry]:
        """All entries in the order of their times."""
        return iter(sorted(self._live.values()))

    def entries(self) -> list[Entry]:
        """All entries in no order, copied in C."""
        return list(self._live.values())

    def keys(self) -> Iterable[int]:
        """The keys of all records, in no order."""
        return self._live.keys()

    def soonest(self) -> Iterator[Entry]:
        """The same, found one by one: for whoever wants the first few of very many."""
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
        self._latest = max(self._latest, at)

    def add_all(self, at: int, records: Sequence[Record]) -> None:
        """Give records, in the order of their keys, one time."""
        keys = [record.key for record in records]
        entries = list(zip(repeat(at), keys, records, strict=False))
        self._live.update(zip(keys, entries, strict=True))
        if at > self._latest:  # what sorts last can be added to a heap as it is
            self._latest = at
            self._heap += entries
        else:
            for entry in entries:
                heappush(self._heap, entry)

    def remove(self, key: int) -> None:
        del self._live[key]
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            heap = list(self._live.values())
            heapify(heap)
            self._heap = heap

    def rebuild(self, gone: Container[int]) -> None:
        """Make the heap anew, without these: an interrupt has left it unfinished."""
        live = {key: entry for key, entry in self._live.items() if key not in gone}
        heap = list(live.values())
        heapify(heap)
        self._live, self._heap = live, heap

    def find(self, key: int) -> Record | None:
        entry = self._live.get(key)
        return entry and entry[2]

    def first(self) -> int | None:
        """The earliest time."""
        heap = self._heap
        while heap and self._live.get(heap[0][1]) is not heap[0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: int, most: int | None = None) -> list[Entry]:
        """Entries whose time has come, in order: all of them, or the first `most`."""
        return list(islice(takewhile(lambda entry: entry[0] <= now, self.soonest()), most))
