"""Events as bytes: the head of each entry, its details, and back again (R50, R58)."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox.core import apply, journal
from pillarbox.core import events as e
from pillarbox.core.queue import Attempt, Death, Extra, Lease, Queue, Record
from tests.core import commands as c
from tests.core.scene import START, S, Scene

RECORD = Record(77, b"body", 9, 0, {"b": "2", "a": "1"}, Extra("g", "d"))
PLAIN = Record(78, b"plain")
LEASE = Lease(PLAIN, 3, 1_000, 1_500, 500)

# event: kind, priority, number, key, at, details, body of each entry
ENTRIES: list[tuple[e.Event, list[tuple[Any, ...]]]] = [
    (
        e.Sent([RECORD, PLAIN]),
        [
            ("sent", 9, 0, 77, 0, [{"a": "1", "b": "2"}, "g", "d"], b"body"),
            ("sent", 0, 0, 78, 0, None, b"plain"),
        ],
    ),
    (e.Scheduled([PLAIN], 5_000), [("scheduled", 0, 0, 78, 5_000, None, b"plain")]),
    (
        e.Sent([Record(79, b"", 0, 0, {"a": "1"})]),
        [("sent", 0, 0, 79, 0, [{"a": "1"}, None, None], b"")],
    ),
    (
        e.Sent([Record(79, b"", 0, 0, None, Extra("g"))]),
        [("sent", 0, 0, 79, 0, [None, "g", None], b"")],
    ),
    (e.CameDue(PLAIN, 5_000), [("came_due", 0, 0, 78, 5_000, None, b"")]),
    (e.Rescheduled(PLAIN, 7_000), [("rescheduled", 0, 0, 78, 7_000, None, b"")]),
    (e.Leased([LEASE]), [("leased", 0, 3, 78, 1_000, [500, 3], b"")]),
    (e.Hidden([LEASE]), [("leased", 0, 3, 78, 1_000, [500, 3], b"")]),
    (e.Acknowledged([LEASE, LEASE]), [("acknowledged", 0, 0, 78, 0, None, b"")] * 2),
    (
        e.Returned(LEASE, 1_200, "nacked", 9_000),
        [("returned", 0, 0, 78, 1_200, ["nacked", 9_000], b"")],
    ),
    (e.Returned(LEASE, 1_200, "expired"), [("returned", 0, 0, 78, 1_200, ["expired", 0], b"")]),
    (e.Released(LEASE, True), [("released", 0, 1, 78, 0, None, b"")]),
    (e.Released(LEASE, False), [("released", 0, 0, 78, 0, None, b"")]),
    (e.Extended(LEASE, 9_000, 600), [("extended", 0, 0, 78, 9_000, 600, b"")]),
    (
        e.Died(LEASE, 1_200, "rejected", "why"),
        [("died", 0, 0, 78, 1_200, ["rejected", "why"], b"")],
    ),
    (e.DiedInLine(PLAIN, 1_200, "why"), [("died_in_line", 0, 0, 78, 1_200, "why", b"")]),
    (
        e.Redriven([PLAIN, RECORD], Queue("target"), 1_300),
        [("redriven", 0, 0, 0, 1_300, ["target", [78, 77]], b"")],
    ),
    (e.Removed([77, 78]), [("removed", 0, 0, 0, 0, [77, 78], b"")]),
    (e.Purged(), [("purged", 0, 0, 0, 0, None, b"")]),
]


@pytest.mark.parametrize(("event", "expected"), ENTRIES, ids=lambda x: type(x).__name__)
def test_R50_an_event_is_an_entry_for_each_message(
    event: e.Event, expected: list[tuple[Any, ...]]
) -> None:
    entries = [journal.decode(line) for line in journal.encode(event, 4)]

    got = [
        (journal.KINDS[x.kind], x.priority, x.number, x.key, x.at, x.details, x.body)
        for x in entries
    ]
    assert got == expected
    assert {entry.queue for entry in entries} == {4}


def test_R50_without_a_number_it_is_the_first_queue() -> None:
    (line,) = journal.encode(e.Purged())

    assert journal.decode(line).queue == 0


def test_R50_the_bytes_of_an_entry_are_these() -> None:
    """They are on people's disks: a change of the layout must be meant."""
    (line,) = journal.encode(e.Scheduled([RECORD], 5_000), 4)

    assert journal.HEAD.size == 32
    kind, priority, number, queue, key = "02", "09", "0000", "04000000", "4d00000000000000"
    low, high, length = "8813000000000000", "00000000", "0e000000"
    details = "9382" + "a161a131" + "a162a132" + "a167" + "a164"
    head = kind + priority + number + queue + key + low + high + length
    assert line.hex() == head + details + b"body".hex()
    assert journal.body_of(line) == b"body"


def test_R50_a_time_may_be_later_than_64_bits_can_say() -> None:
    for at in (2**64 - 1, 2**64, 2**68 + 7):
        (line,) = journal.encode(e.CameDue(PLAIN, at))
        assert journal.decode(line).at == at
        assert journal.body_of(line) == b""


def test_R50_an_entry_without_details_is_its_head_alone() -> None:
    (line,) = journal.encode(e.Purged(), 4)

    assert line.hex() == "0d00000004000000" + "00" * 24


def test_R50_the_head_has_room_for_65535_deliveries_and_the_details_for_more() -> None:
    for number, in_head in ((65_535, 65_535), (65_536, 65_535)):
        (line,) = journal.encode(e.Leased([Lease(PLAIN, number, 1_000, 1_500, 500)]))
        entry = journal.decode(line)
        assert (entry.number, entry.details) == (in_head, [500, number])


def test_R50_the_kinds_have_these_numbers() -> None:
    assert list(journal.KINDS) == list(range(1, 20))
    assert len(set(journal.KINDS.values())) == 19


def _replayed(scene: Scene, *commands: c.Command) -> Queue:
    """The queue that results from the bytes of what these commands do."""
    copy = Queue(scene.queue.name, scene.queue.settings)
    dead = Queue("jobs_dlq")
    if scene.queue.dead_letters is not None:
        copy.send_dead_letters_to(dead)
    for command in commands:
        for line in (x for event in scene.do(command) for x in journal.encode(event)):
            entry = journal.decode(line)
            journal.replay(copy, entry, entry.body, {"jobs_dlq": dead}.__getitem__)
    return copy


def test_R50_a_replayed_message_has_all_it_had() -> None:
    record = Record(77, b"body", 9, 0, {"a": "1"}, Extra("g", "d"))

    copy = _replayed(Scene(), c.send([record, Record(78, b"plain")]))

    again, plain = (next(iter(copy.groups["g"].waiting)), copy.lanes[0].head[0])
    assert (again.key, again.body, again.priority, again.deliveries) == (77, b"body", 9, 0)
    assert (again.attributes, again.extra) == ({"a": "1"}, Extra("g", "d"))
    assert isinstance(plain, Record)
    assert (plain.attributes, plain.extra) == (None, None)
    assert list(copy.duplicates) == [(None, "d")]


def test_R50_a_replayed_lease_has_all_it_had() -> None:
    copy = _replayed(Scene(), c.send([Record(78, b"plain")]), c.receive(1, 5 * S))

    (lease,) = copy.leases
    assert (lease.number, lease.leased_at, lease.deadline, lease.timeout) == (
        *(1, START, START + 5 * S),
        5 * S,
    )


def test_R50_a_replayed_extension_has_its_deadline() -> None:
    scene = Scene()
    scene.send("a")
    (lease,) = scene.receive(1, 5 * S)
    copy = Queue("jobs")
    lines = [
        *journal.encode(e.Sent([Record(lease.record.key, b"a")])),
        *journal.encode(e.Leased([lease])),
        *journal.encode(e.Extended(lease, START + 7 * S, 7 * S)),
    ]
    for line in lines:
        entry = journal.decode(line)
        journal.replay(copy, entry, entry.body, {}.__getitem__)

    (again,) = copy.leases
    assert again.deadline == START + 7 * S
    assert copy.leases.first_deadline() == START + 7 * S


def test_R50_a_replayed_lease_keeps_what_it_saw() -> None:
    record = Record(78, b"x", 0, 0, None, Extra("g"))

    copy = _replayed(Scene(), c.send([record]), c.receive(1, 5 * S))

    (lease,) = copy.leases
    assert lease.extra == Extra("g")
    assert lease.extra is lease.record.extra


def test_R50_attributes_alone_make_no_extra() -> None:
    copy = _replayed(Scene(), c.send([Record(78, b"plain", 0, 0, {"a": "1"})]))

    record = copy.lanes[0].head[0]
    assert isinstance(record, Record)
    assert (record.attributes, record.extra) == ({"a": "1"}, None)


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (e.Acknowledged([LEASE]), "message 78 is not in 'jobs'"),
        (e.Returned(LEASE, 1, "nacked"), "message 78 is not in 'jobs'"),
        (e.CameDue(PLAIN, 5), "message 78 of 'jobs' is not scheduled"),
        (e.Rescheduled(PLAIN, 5), "message 78 of 'jobs' is not scheduled"),
        (e.Leased([LEASE]), "message 78 is not in 'jobs'"),
        (e.DiedInLine(PLAIN, 1, "why"), "message 78 is not in 'jobs'"),
        (e.Redriven([PLAIN], Queue("other"), 1), "message 78 is not in 'jobs'"),
    ],
)
def test_R50_an_entry_that_does_not_fit_is_noticed(event: e.Event, what: str) -> None:
    (line,) = journal.encode(event)
    entry = journal.decode(line)

    with pytest.raises(journal.ReplayError) as caught:
        journal.replay(Queue("jobs"), entry, entry.body, {}.__getitem__)

    assert str(caught.value).startswith(what)


def test_R50_a_message_at_the_head_of_any_line_is_found_for_its_lease() -> None:
    scene = Scene(redelivery="original")
    records = [Record(80 + i, b"", priority) for i, priority in enumerate((0, 5, 0))]
    grouped = [Record(90 + i, b"", 0, 0, None, Extra("g")) for i in range(3)]
    copy = _replayed(
        scene, c.send(records), c.send(grouped), c.receive(1, S), c.receive(4, 2 * S), c.tick()
    )

    assert sorted(lease.record.key for lease in copy.leases) == [80, 81, 82, 90, 91]
    apply.settle(copy, START + 9 * S)
    assert copy.ready == 6


def _rebuilt(*happened: e.Event) -> tuple[Queue, Queue]:
    """A queue and its dead letters, from the bytes of what happened."""
    copy, dead = Queue("jobs"), Queue("jobs_dlq")
    copy.send_dead_letters_to(dead)
    for event in happened:
        for line in journal.encode(event):
            entry = journal.decode(line)
            journal.replay(copy, entry, entry.body, {"jobs": copy, "jobs_dlq": dead}.__getitem__)
    return copy, dead


def test_R50_a_replayed_schedule_has_its_time_and_then_its_place() -> None:
    later = Record(78, b"later", 0, 0, {"a": "1"})

    copy, _ = _rebuilt(e.Scheduled([later], 5_000))
    assert [(at, key, x.body, x.attributes) for at, key, x in copy.schedule] == [
        (5_000, 78, b"later", {"a": "1"})
    ]
    copy, _ = _rebuilt(e.Scheduled([later], 5_000), e.Rescheduled(later, 6_000))
    assert [at for at, _, _ in copy.schedule] == [6_000]
    copy, _ = _rebuilt(e.Scheduled([later], 5_000), e.CameDue(later, 5_000))
    assert (copy.scheduled, [x.body for x in copy.lanes[0]]) == (0, [b"later"])

    known = Record(79, b"known", 0, 0, None, Extra(None, "d"))
    copy, _ = _rebuilt(e.Scheduled([known], 5_000), e.CameDue(known, 5_200))
    (record,) = copy.lanes[0]
    assert isinstance(record, Record)
    assert record.extra == Extra(None, "d", place=2_600)


def test_R39_a_replayed_death_has_its_history() -> None:
    lease = Lease(PLAIN, 3, 1_000, 1_500, 500)
    died = e.Died(lease, 1_200, "rejected", "why")

    copy, dead = _rebuilt(e.Sent([PLAIN]), e.Leased([lease]), died)

    assert copy.size == 0
    (record,) = dead.lanes[0]
    assert isinstance(record, Record)
    assert (record.key, record.body, record.deliveries) == (78, b"plain", 3)
    assert record.extra == Extra(
        place=600,
        attempts=(Attempt(1_000, 1_200, "rejected"),),
        death=Death("jobs", "why", 1_200, 3),
    )


def test_R39_a_replayed_death_in_line_and_its_redrive() -> None:
    died = e.DiedInLine(PLAIN, 1_200, "delivered 3 times")

    copy, dead = _rebuilt(e.Sent([PLAIN]), died)
    (record,) = dead.lanes[0]
    assert isinstance(record, Record)
    assert record.extra == Extra(place=600, death=Death("jobs", "delivered 3 times", 1_200))

    (line,) = journal.encode(e.Redriven([record], copy, 2_000))
    journal.replay(dead, journal.decode(line), b"", {"jobs": copy}.__getitem__)
    assert (dead.size, [x.body for x in copy.lanes[0]]) == (0, [b"plain"])
    assert record.extra == Extra(place=1_000)
    with pytest.raises(journal.ReplayError, match="message 78 is not in 'jobs_dlq'"):
        journal.replay(dead, journal.decode(line), b"", {"jobs": copy}.__getitem__)
