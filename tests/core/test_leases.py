"""Leases by deadline: a line for each of a few timeouts, a heap for the rest (R13, R50, R53)."""

from __future__ import annotations

from pillarbox.core.leases import Leases
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

    leases.remove(unusual[3])
    assert leases.first_deadline() == 90
    assert leases.find(11) is None
    leases.remove(usual[0])
    assert (len(leases), leases.find(0)) == (10, None)


def test_R50_an_empty_line_gives_its_place_to_a_new_timeout() -> None:
    leases = Leases()
    mine = [lease(key, timeout=100 + key) for key in range(8)]
    for each in mine:
        leases.add(each)
    leases.remove(mine[3])

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
        leases.remove(each)
    assert len(leases) == 8
