"""A sorted list of messages, of any length.

A lane is a list of short deques. Finding, inserting or removing a message takes O(log n) steps,
plus moving at most a few thousand pointers in C.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Generic, TypeVar

T = TypeVar("T")
Position = tuple[int, int]

PART_MAX = 8_192


class Lane(Generic[T]):
    """Items sorted by position.

    `head` and `tail` are the first and the last part, which are the same in a short lane. The hot
    path appends to the tail, however long it gets, and takes from the head, calling `advance` when
    it is empty; a part that is too long is split by the next search in it. No other part is empty,
    except after an interrupt, which the code allows for. `parts` is authoritative, and changed in
    one step.
    """

    __slots__ = ("head", "parts", "position", "tail")

    def __init__(self, position: Callable[[T], Position], items: Iterable[T] = ()) -> None:
        self.position = position
        if items:
            self.replace(items)
        else:
            self.head = self.tail = deque[T]()
            self.parts = [self.head]

    def replace(self, items: Iterable[T]) -> None:
        """Replace the contents with these sorted items."""
        rest = iter(items)
        parts = [deque(islice(rest, PART_MAX))]
        while some := deque(islice(rest, PART_MAX)):
            parts.append(some)
        self.parts = parts
        self.head, self.tail = parts[0], parts[-1]

    def clear(self) -> None:
        self.replace(())

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __bool__(self) -> bool:
        return any(self.parts)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.parts)

    def __reversed__(self) -> Iterator[T]:
        return chain.from_iterable(map(reversed, reversed(self.parts)))

    def page(self, start: int, end: int) -> list[T]:
        """Return the items from one index to another, without visiting those before."""
        found: list[T] = []
        for part in self.parts:
            if start < end and start < len(part):
                found += islice(part, start, end)
            start, end = max(0, start - len(part)), end - len(part)
        return found

    # -- at the ends -----------------------------------------------------------------------------

    def append(self, item: T) -> None:
        """Add an item with the highest position."""
        tail = self.tail
        if len(tail) >= PART_MAX:
            tail = self.grow()
        tail.append(item)

    def grow(self) -> deque[T]:
        """Start a new tail when the old one is full."""
        if self.parts[-1]:  # otherwise left empty by an interrupt
            self.parts.append(deque())
        self.tail = self.parts[-1]
        return self.tail

    def extend(self, items: Iterable[T]) -> None:
        """Add sorted items with the highest positions."""
        rest = iter(items)
        self.tail.extend(islice(rest, max(0, PART_MAX - len(self.tail))))
        for item in rest:
            tail = self.grow()
            tail.append(item)
            tail.extend(islice(rest, PART_MAX - 1))

    def appendleft(self, item: T) -> None:
        """Add an item with the lowest position."""
        if len(self.head) >= PART_MAX:
            head: deque[T] = deque()
            self.parts.insert(0, head)
            self.head = head
        self.head.appendleft(item)

    def popleft(self) -> T:
        item = self.head.popleft()
        if not self.head:
            self.advance()
        return item

    def drop(self, count: int) -> None:
        """Remove the first items."""
        while count > len(self.head):
            count -= len(self.head)
            self.head.clear()
            self.advance()
        popleft = self.head.popleft
        for _ in range(count):
            popleft()
        if not self.head:
            self.advance()

    def advance(self) -> None:
        """Make the next part the head when the head is empty."""
        parts = self.parts
        while not parts[0] and len(parts) > 1:
            self.head = parts[1]
            del parts[0]

    # -- anywhere --------------------------------------------------------------------------------

    def get(self, position: Position) -> T | None:
        """Return the item at exactly this position."""
        part, at = self._find(position)
        if at < len(part) and self.position(part[at]) == position:
            return part[at]
        return None

    def insert(self, item: T) -> None:
        """Add an item at its position."""
        position = self.position(item)
        if self.tail:
            last: T | None = self.tail[-1]
        else:
            last = next(reversed(self), None) if len(self.parts) > 1 else None
        if last is None or self.position(last) < position:
            self.append(item)
            return
        part, at = self._find(position)
        part.insert(at, item)

    def remove(self, item: T) -> None:
        """Remove an item, which must be in the lane."""
        if self.head and self.head[0] is item:
            self.popleft()
            return
        part, at = self._find(self.position(item))
        assert part[at] is item, "a lane is sorted"
        del part[at]
        if not part:
            self._drop(part)

    def _find(self, position: Position) -> tuple[deque[T], int]:
        """Return the part that contains or would contain a position, and the index in it."""
        if self.head and position <= self.position(self.head[0]):
            return self.head, 0
        part = self.parts[self._number(position)]
        if len(part) > 2 * PART_MAX:
            self._split(self._number(position))
            part = self.parts[self._number(position)]
        return part, bisect_left(part, position, key=self.position)

    def _number(self, position: Position) -> int:
        """Return the number of that part; a position after all others belongs to the last."""
        of, parts = self.position, self.parts
        return bisect_left(parts, position, 0, len(parts) - 1, key=lambda part: of(part[-1]))

    def _split(self, number: int) -> None:
        whole = Lane(self.position, self.parts[number])
        self.parts[number : number + 1] = whole.parts
        self.head, self.tail = self.parts[0], self.parts[-1]

    def _drop(self, part: deque[T]) -> None:
        """Remove an empty part that is not the only one."""
        del self.parts[next(i for i, each in enumerate(self.parts) if each is part)]
        self.head, self.tail = self.parts[0], self.parts[-1]
