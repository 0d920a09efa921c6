"""Leases by deadline: a line for each of a few timeouts, a heap for the rest (R13, R50, R53)."""

from __future__ import annotations

from pillarbox.core.leases import STALE_MAX, Leases
from pillarbox.core.queue import Lease, Record


def lease(key: int, timeout: int, now: int = 0) -> Lease:
    return Lease(Record(key, b""), 1, now, now + timeout, timeout)


def test_R53_no_leases_have_no_deadline() -> None:
    leases = Leases()

    assert leases.first_deadline() is None
    assert leases.expired(10**20) == []
    assert (len(leases), list(leases)) == (0, [])
    assert leases.find(1) is None


def test_R53_leases_run_out_by_deadline_whatever_their_timeouts() -> None:
    leases = Leases()
    slow, quick = lease(1, 50, now=10), lease(2, 5, now=20)
    leases.add(slow)
    leases.add(quick)

    assert leases.first_deadline() == 25
    assert leases.expired(24) == []
    assert leases.expired(25) == [quick]
    assert leases.expired(60) == [slow, quick]
    assert len(leases) == 2  # nothing is taken out


def test_R13_a_lease_is_found_by_the_key_of_its_message() -> None:
    leases = Leases()
    mine = [lease(key, timeout=key) for key in range(1, 12)]
    for each in mine:
        leases.add(each)

    assert [leases.find(key) for key in range(1, 12)] == mine
    assert leases.find(12) is None
    assert list(leases) == mine
    assert len(leases) == 11


def test_R50_timeouts_past_the_first_eight_share_a_heap() -> None:
    leases = Leases()
    usual = [lease(key, timeout=100 + key) for key in range(8)]
    unusual = [lease(key, timeout=100 - key) for key in range(8, 12)]
    for each in usual + unusual:
        leases.add(each)

    assert len(leases.lines) == 8
    assert [each.timeout for each in unusual] == [-1] * 4
    assert leases.first_deadline() == 89
    assert leases.expired(90) == [unusual[3], unusual[2]]

    leases.end([unusual[3]])
    assert leases.first_deadline() == 90
    assert leases.find(11) is None
    leases.end([usual[0]])
    assert (len(leases), leases.find(0)) == (10, None)


def test_R50_an_empty_line_gives_its_place_to_a_new_timeout() -> None:
    leases = Leases()
    mine = [lease(key, timeout=100 + key) for key in range(8)]
    for each in mine:
        leases.add(each)
    leases.end([mine[3]])

    leases.add(lease(20, timeout=500))

    assert sorted(leases.lines) == [100, 101, 102, 104, 105, 106, 107, 500]
    leases.add(lease(21, timeout=501))
    assert 501 not in leases.lines


def test_R50_leases_given_together_are_added_together() -> None:
    leases = Leases()
    first = [lease(1, 30), lease(2, 30)]
    leases.add_all(first)
    more = [lease(3, 30, now=1), lease(4, 30, now=1)]
    leases.add_all(more)

    assert list(leases) == first + more
    assert list(leases.lines) == [30]
    assert leases.expired(30) == first


def test_R50_leases_of_an_unusual_timeout_are_added_together_too() -> None:
    leases = Leases()
    for key in range(8):
        leases.add(lease(key, timeout=100 + key))
    unusual = [lease(10, 7), lease(11, 7)]

    leases.add_all(unusual)

    assert leases.expired(7) == unusual
    for each in unusual:
        leases.end([each])
    assert len(leases) == 8


def test_R50_the_soonest_to_run_out_come_first_whatever_their_timeouts() -> None:
    leases = Leases()
    assert list(leases.soonest()) == []
    for key in range(40):
        leases.add(lease(key, timeout=1 + key * 7 % 20, now=key))  # twenty timeouts, eight lines
    leases.end([next(iter(leases))])

    soonest = list(leases.soonest())

    assert [each.deadline for each in soonest] == sorted(each.deadline for each in leases)
    assert {each.record.key for each in soonest} == {each.record.key for each in leases}
    assert len(soonest) == 39


def test_R50_a_lease_that_ended_out_of_turn_stands_until_it_is_first() -> None:
    leases = Leases()
    first, second, third = mine = [lease(key, 30, now=key) for key in (1, 2, 3)]
    leases.add_all(mine)

    leases.end([second])
    assert (second.deadline, leases.stale, len(leases)) == (0, 1, 2)
    assert list(leases) == list(leases.soonest()) == leases.expired(99) == [first, third]
    assert (leases.first_deadline(), leases.expired(32)) == (31, [first])

    leases.end([first])
    assert leases.first_deadline() == 33
    assert (leases.stale, list(leases.lines[30])) == (0, [third])
    leases.end([third])
    assert (leases.stale, len(leases.lines[30]), leases.first_deadline()) == (0, 0, None)


def test_R50_ended_leases_are_swept_once_they_are_the_majority() -> None:
    leases = Leases()
    mine = [lease(key, 30 + key % 2) for key in range(200)]  # two lines, neither with a free head
    for each in mine:
        leases.add(each)
    held, rest = mine[:2], mine[2:]

    leases.end(rest[:131])
    leases.end(rest[131:132])
    assert (leases.stale, len(leases)) == (132, 68)  # 64 more than those that live

    leases.end(rest[132:133])
    assert (leases.stale, len(leases)) == (0, 67)
    assert sum(map(len, leases.lines.values())) == 67
    assert list(leases) == [held[0], *rest[134::2], held[1], *rest[133::2]]


def test_R50_the_hot_path_may_leave_an_ended_lease_where_it_stands() -> None:
    leases = Leases()
    *rest, held = mine = [lease(key, 30, now=key) for key in range(66)]
    leases.add_all(mine)

    for count, each in enumerate(rest[:64], 1):
        each.deadline = 0
        leases.stale += 1
        assert (leases.stale, len(leases)) == (count, 66 - count)
    rest[64].deadline = 0
    leases.stale += 1
    assert leases.stale > STALE_MAX  # one too many: now it is worth a sweep
    leases.tidy()

    assert (leases.stale, list(leases.lines[30])) == (0, [held])


def test_R8_an_extended_lease_leaves_its_line() -> None:
    leases = Leases()
    first, second, third = mine = [lease(key, 30, now=key) for key in (1, 2, 3)]
    leases.add_all(mine)

    leases.extend(second, 500)
    assert (second.deadline, second.timeout, leases.stale) == (500, -1, 1)
    assert list(leases.soonest()) == [first, third, second]
    assert leases.expired(100) == [first, third]
    assert (len(leases), leases.find(2)) == (3, second)

    leases.extend(second, 5)  # and once more
    assert leases.expired(5) == [second]
    assert (len(leases), leases.first_deadline()) == (3, 5)

    leases.end([first, second])
    assert (second.deadline, list(leases), leases.first_deadline()) == (0, [third], 33)
    assert (len(leases), leases.stale) == (1, 0)


def test_R8_a_lease_extended_at_the_head_makes_room_for_the_next() -> None:
    leases = Leases()
    first, second = mine = [lease(1, 30), lease(2, 30, now=5)]
    leases.add_all(mine)

    leases.extend(first, 500)

    assert list(leases.lines[30]) == [second]
    assert (leases.stale, len(leases), leases.first_deadline()) == (0, 2, 35)


def test_R13_an_index_is_made_when_it_is_first_asked_for_and_kept() -> None:
    leases = Leases()
    first, second = lease(1, 30), lease(2, 40)
    leases.add(first)
    leases.add(second)
    lines = leases.lines

    assert leases.find(2) is second
    assert leases.lines is lines == {}  # the hot path finds nothing, and so keeps away

    third, fourth = lease(3, 30, now=7), lease(4, 30, now=7)
    leases.add_all([third, fourth])
    assert [leases.find(key) for key in (1, 3, 4, 5)] == [first, third, fourth, None]
    leases.end([first, third])
    assert [leases.find(key) for key in (1, 2, 3, 4)] == [None, second, None, fourth]
    leases.extend(second, 99)
    assert leases.find(2) is second
    assert (len(leases), leases.first_deadline()) == (2, 37)


def test_R3_when_all_is_purged_every_lease_is_over_and_the_hot_path_may_come_back() -> None:
    leases = Leases()
    mine = [lease(key, timeout=100 + key) for key in range(10)]
    for each in mine:
        leases.add(each)
    leases.end(mine[:1])
    lines = leases.lines
    leases.find(3)

    leases.clear()

    assert [each.deadline for each in mine] == [0] * 10
    assert (len(leases), list(leases), leases.stale, leases.first_deadline()) == (0, [], 0, None)
    again = lease(3, timeout=103)
    leases.add(again)
    assert leases.lines is lines
    assert list(lines) == [103]
    assert leases.find(3) is again
    assert leases.find(4) is None


def test_R50_leases_on_some_messages_are_found_with_an_index_and_without() -> None:
    leases = Leases()
    mine = {key: lease(key, 30) for key in range(5)}
    leases.add_all(list(mine.values()))
    leases.end([mine[2]])

    wanted = {1, 2, 4, 9}
    assert leases.among(wanted) == {1: mine[1], 4: mine[4]}
    assert leases.lines  # no index was made for it
    leases.find(0)
    assert leases.among(wanted) == {1: mine[1], 4: mine[4]}


def test_R50_a_line_whose_leases_have_all_ended_gives_its_place_too() -> None:
    leases = Leases()
    mine = [lease(key, timeout=100 + key) for key in range(8)]
    for each in mine:
        leases.add(each)
    mine[3].deadline = 0
    leases.stale += 1  # the hot path left it in its line

    leases.add(lease(20, timeout=500))

    assert 500 in leases.lines
    assert (len(leases), leases.stale) == (8, 0)


def test_R8_several_may_be_extended() -> None:
    leases = Leases()
    first, second, third = mine = [lease(key, 30, now=key) for key in (1, 2, 3)]
    leases.add_all(mine)

    leases.extend(second, 500)
    leases.extend(third, 400)

    assert (leases.stale, len(leases)) == (2, 3)
    assert list(leases.soonest()) == [first, third, second]
