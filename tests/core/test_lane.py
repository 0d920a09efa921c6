"""A lane holds what a sorted list would, whatever is done to it, in parts of a bounded length."""

from __future__ import annotations

import bisect
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.core import lane as module
from pillarbox.core.lane import Lane, Position

PART_MAX = 3


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_MAX", PART_MAX)


class Item:
    """Sorted by its number; two of the same number are two."""

    def __init__(self, number: int) -> None:
        self.number = number


def position(item: Item) -> Position:
    return item.number, 0


VERBS = ("append", "extend", "appendleft", "popleft", "insert", "remove", "replace", "page")


@given(st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 60)), max_size=60))
def test_R51_a_lane_is_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    module.PART_MAX = PART_MAX
    lane, model = Lane(position), list[Item]()
    for verb, number in steps:
        first = model[0].number if model else 0
        last = model[-1].number if model else 0
        if verb == "append":
            model.append(Item(last + 1 + number))
            lane.append(model[-1])
        elif verb == "extend":
            items = [Item(last + 1 + n) for n in range(number % 11)]
            model += items
            lane.extend(iter(items))
        elif verb == "appendleft":
            model.insert(0, Item(first - 1 - number))
            lane.appendleft(model[0])
        elif verb == "popleft" and model:
            assert lane.popleft() is model.pop(0)
        elif verb == "insert" and number not in [item.number for item in model]:
            bisect.insort(model, Item(number), key=position)
            lane.insert(next(item for item in model if item.number == number))
        elif verb == "remove" and model:
            lane.remove(model.pop(number % len(model)))
        elif verb == "replace":
            model = model[number % 7 :]
            lane.replace(model)
        elif verb == "page":
            assert lane.page(number % 9, number) == model[number % 9 : number]
        check(lane, model)
    lane.clear()
    check(lane, [])


def check(lane: Lane[Item], model: list[Item]) -> None:
    assert list(lane) == model
    assert list(reversed(lane)) == model[::-1]
    assert (len(lane), bool(lane)) == (len(model), bool(model))
    assert (lane.head, lane.tail) == (lane.parts[0], lane.parts[-1])
    assert all(lane.parts) or len(lane.parts) == 1, "an empty part is kept"
    for item in model:
        assert lane.get(position(item)) is item
        assert lane.get((item.number, 1)) is None
    assert max(map(len, lane.parts)) <= 2 * PART_MAX, "what was looked through is split"


def test_R51_one_part_follows_another_without_a_method_of_the_lane() -> None:
    """As the hot path uses it."""
    items = [Item(number) for number in range(2 * PART_MAX)]
    lane = Lane(position, items)
    assert lane.head is not lane.tail
    for _ in range(PART_MAX):
        lane.head.popleft()
    lane.advance()
    assert list(lane.head) == items[PART_MAX:]
    for number in range(90, 99):
        lane.tail.append(Item(number))
    assert [item.number for item in lane] == [3, 4, 5, *range(90, 99)]


def test_R111_an_interrupt_may_leave_an_empty_tail_behind() -> None:
    lane = Lane(position, [Item(number) for number in range(PART_MAX)])
    lane.parts.append(deque())  # and then a handler raised
    assert lane.get((1, 0)) is not None
    assert lane.get((9, 0)) is None
    lane.append(Item(9))
    assert [len(part) for part in lane.parts] == [PART_MAX, 1]
    assert lane.tail is lane.parts[-1]
