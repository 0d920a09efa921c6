"""R113: what a full disk had no room to note does not keep a log from being replayed."""

from __future__ import annotations

from pillarbox.core import events as e
from pillarbox.core import journal
from pillarbox.core.queue import Extra, Lease, Queue, Record, waiting


def lease_of(record: Record, number: int = 1) -> Lease:
    return Lease(record, number, 1_000, 1_500, 500)


def replayed(*events: e.Event, queue: Queue | None = None) -> Queue:
    """A queue, from the bytes of some of what happened to it."""
    copy = queue or Queue("jobs")
    dead = Queue("jobs_dlq")
    copy.send_dead_letters_to(dead)
    for event in events:
        for data in journal.encode(event):
            entry = journal.decode(data)
            journal.replay(copy, entry, entry.body, {"other": dead}.__getitem__)
    return copy


def keys(queue: Queue) -> list[int]:
    return [record.key for record in waiting(queue)]


def plain(key: int) -> Record:
    return Record(key, b"plain")


def grouped(key: int) -> Record:
    return Record(key, b"grouped", 0, 0, None, Extra("g"))


def test_R113_what_was_acknowledged_is_gone_though_its_delivery_is_not_known() -> None:
    queue = replayed(e.Sent([plain(1), plain(2), plain(3)]), e.Acknowledged([lease_of(plain(2))]))
    assert (keys(queue), queue.in_flight) == ([1, 3], 0)


def test_R113_a_return_whose_delivery_is_not_known_keeps_its_delay() -> None:
    queue = replayed(
        e.Sent([plain(1), plain(2)]), e.Returned(lease_of(plain(1)), 1_200, "nacked", 9_000)
    )
    assert keys(queue) == [2]
    assert [(at, record.deliveries) for at, _, record in queue.schedule] == [(9_000, 1)]


def test_R113_a_death_whose_delivery_is_not_known_is_a_death() -> None:
    queue = replayed(
        e.Sent([plain(1), plain(2)]), e.Died(lease_of(plain(2)), 1_200, "rejected", "why")
    )
    assert queue.dead_letters is not None
    assert (keys(queue), keys(queue.dead_letters)) == ([1], [2])
    queue = replayed(e.Sent([plain(1), plain(2)]), e.DiedInLine(plain(2), 1_200, "why"))
    assert queue.dead_letters is not None
    assert (keys(queue), keys(queue.dead_letters)) == ([1], [2])


def test_R113_a_delivery_takes_its_message_from_wherever_it_is() -> None:
    first = e.Leased([lease_of(plain(1))])
    again = e.Leased([lease_of(plain(1), 2)])
    queue = replayed(e.Sent([plain(0), plain(1)]), again)
    assert (keys(queue), queue.in_flight) == ([0], 1)
    for queue in (
        replayed(e.Scheduled([plain(1)], 900), e.Sent([plain(2)]), again),  # it came due
        replayed(e.Sent([plain(1), plain(2)]), first, again),  # its first lease ran out
    ):
        assert keys(queue) == [2]
        assert [(lease.record.key, lease.number) for lease in queue.leases] == [(1, 2)]


def test_R113_a_group_is_held_by_a_delivery_that_is_not_known() -> None:
    extended = e.Extended(lease_of(grouped(1)), 9_000, 600)
    queue = replayed(e.Sent([grouped(1), grouped(2), plain(3)]), extended)
    assert (queue.in_flight, queue.groups_in_lanes, keys(queue)) == (1, 0, [3, 2])
    assert queue.groups["g"].held == 1
    queue = replayed(e.Acknowledged([lease_of(grouped(1))]), queue=queue)
    assert (queue.in_flight, queue.groups_in_lanes, keys(queue)) == (0, 1, [3, 2])

    queue = replayed(e.Sent([grouped(1)]), extended, e.Acknowledged([lease_of(grouped(1))]))
    assert (queue.size, queue.groups) == (0, {})


def test_R113_what_was_redriven_goes_though_it_seems_to_be_in_flight() -> None:
    queue = replayed(
        e.Sent([plain(1), plain(2)]),
        e.Leased([lease_of(plain(1))]),  # and its lease ran out
        e.Redriven([plain(1)], Queue("other"), 2_000),
    )
    assert queue.dead_letters is not None
    assert (keys(queue), queue.in_flight, keys(queue.dead_letters)) == ([2], 0, [1])
