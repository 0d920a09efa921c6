"""Timers: by time, then by age; removed entries don't pile up (R50, R53)."""

from __future__ import annotations

from pillarbox.core.queue import Record
from pillarbox.core.timers import Timers


def record(key: int) -> Record:
    return Record(key, b"")


def test_R53_no_timers_have_no_first() -> None:
    timers = Timers()

    assert timers.first() is None
    assert timers.due(10**20) == []
    assert list(timers) == []
    assert len(timers) == 0


def test_R53_the_first_is_the_earliest_whatever_the_order_of_adding() -> None:
    timers = Timers()
    for at in (30, 10, 20):
        timers.add(at, record(at))

    assert timers.first() == 10
    assert [(at, key) for at, key, _ in timers] == [(10, 10), (20, 20), (30, 30)]
    assert len(timers) == 3


def test_R53_due_are_those_whose_time_has_come_and_they_stay() -> None:
    timers = Timers()
    for at in (5, 1, 4, 2, 3, 9, 7, 8, 6):
        timers.add(at, record(at))

    assert sorted(key for _, key, _ in timers.due(0)) == []
    assert sorted(key for _, key, _ in timers.due(1)) == [1]
    assert sorted(key for _, key, _ in timers.due(5)) == [1, 2, 3, 4, 5]
    assert sorted(key for _, key, _ in timers.due(9)) == list(range(1, 10))
    assert len(timers) == 9


def test_R53_equal_times_keep_the_order_of_sending() -> None:
    timers = Timers()
    for key in (3, 1, 2):
        timers.add(10, record(key))

    assert [key for _, key, _ in timers] == [1, 2, 3]


def test_R50_a_removed_entry_is_neither_first_nor_due_nor_found() -> None:
    timers = Timers()
    kept, gone = record(2), record(1)
    timers.add(10, gone)
    timers.add(20, kept)

    timers.remove(1)

    assert timers.find(1) is None
    assert timers.find(2) is kept
    assert timers.find(3) is None
    assert [key for _, key, _ in timers.due(99)] == [2]
    assert timers.first() == 20
    assert len(timers) == 1


def test_R50_an_entry_that_was_removed_and_added_again_counts_once() -> None:
    timers = Timers()
    mine = record(1)
    timers.add(10, mine)
    timers.remove(1)
    timers.add(30, mine)

    assert timers.first() == 30
    assert timers.due(29) == []
    assert [(at, key) for at, key, _ in timers.due(30)] == [(30, 1)]


def test_R50_a_few_removed_entries_stay_and_a_majority_is_swept() -> None:
    timers = Timers()
    for key in range(200):
        timers.add(key, record(key))

    for key in range(1, 133):  # 68 live on: as many as a heap of 200 may have (2 x 68 + 64)
        timers.remove(key)
    assert (len(timers), len(timers._heap)) == (68, 200)

    timers.remove(150)  # one too many
    assert (len(timers), len(timers._heap)) == (67, 67)
    assert timers.first() == 0
    assert sorted(key for _, key, _ in timers.due(199)) == [0, *range(133, 150), *range(151, 200)]
    timers.remove(0)
    assert timers.first() == 133


def test_R50_the_soonest_are_found_one_by_one_in_the_same_order() -> None:
    timers = Timers()
    assert list(timers.soonest()) == []
    for number in range(100):  # 37 and 100 have no common factor: every time once, in no order
        timers.add(number * 37 % 100, record(number))
    for number in range(0, 60, 3):
        timers.remove(number)
    again = record(3)
    timers.add(50, again)

    assert list(timers.soonest()) == list(timers)
    assert len(list(timers.soonest())) == 81
