"""R140: a queue stays as fast as it was new, however much has passed through it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import psycopg
import pytest

from pillarbox import PostgresMailbox
from pillarbox.testing.postgres import shared_server

ROUNDS = 40
CYCLES = 25  # in a round, which then lasts long enough to be measured
RATIO_MAX = 1.25


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """What is deleted meanwhile can't be vacuumed."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pillarbox.messages")
        yield


def pass_through(box: PostgresMailbox[bytes], count: int) -> None:
    for _ in range(count // 100):
        box.send_many([b"x" * 100] * 100)
        box.acknowledge_many(box.receive(max_messages=100))


def seconds(box: PostgresMailbox[bytes]) -> float:
    begin = time.perf_counter()
    for _ in range(CYCLES):
        box.send(b"x" * 100)
        assert box.receive()[0].acknowledge()
    return time.perf_counter() - begin


def ratio(used: PostgresMailbox[bytes], new: PostgresMailbox[bytes]) -> float:
    """The cost of a cycle on one queue by that on the other; they take turns."""
    for box in (used, new):
        seconds(box)
    rounds = [(seconds(used), seconds(new)) for _ in range(ROUNDS)]
    return median(a for a, _ in rounds) / median(b for _, b in rounds)


VERBS = {
    "claim": (
        "SELECT pillarbox.claim(1, 1, 1000000, 'x', %(marks)s, %(rewinds)s, %(since)s, true, true)"
    ),
    "send": "SELECT pillarbox.send(1, '{x}', NULL, 0, 0, NULL, NULL, 0, %(since)s, true)",
    "acknowledge": "SELECT pillarbox.acknowledge(1, '{1,2,3}', '{x,y,z}', %(since)s)",
    "nack": "SELECT pillarbox.finish(1, 'nack', 0, NULL, '{1,2,3}', '{x,y,z}', %(since)s)",
    "extend": "SELECT pillarbox.extend(1, 1000000, '{1,2,3}', '{x,y,z}')",
}
PAGES_MAX = 100


@pytest.mark.parametrize("analysed", [False, True], ids=["", "analysed"])
def test_R140_no_verb_walks_what_is_dead(url: str, analysed: bool) -> None:
    """By the pages it reads, which no load of the machine changes. Control: without the marks."""
    with PostgresMailbox("orders", bytes, url=url) as box, old_snapshot(url):
        pass_through(box, 10_000)
        low_water = box._verbs.low_water
        known = {
            "marks": list(low_water._marks.values()),
            "rewinds": low_water._rewinds,
            "since": low_water.since,
        }
        with psycopg.connect(url, autocommit=True) as connection:
            if analysed:  # the planner learns that the table is empty, and many pages long
                connection.execute("ANALYZE pillarbox.messages")
            for statement in VERBS.values():  # what a first call reads is not of the queue
                pages(connection, statement, known)
            found = {name: pages(connection, each, known) for name, each in VERBS.items()}
            assert max(found.values()) < PAGES_MAX, found
            unbounded = known | {"marks": [], "rewinds": -1, "since": 0}
            assert pages(connection, VERBS["claim"], unbounded) > 3 * PAGES_MAX


def pages(connection: Any, statement: str, parameters: dict[str, Any]) -> int:
    """How many pages a statement reads, with the functions that it calls."""
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
    plan = connection.execute(explain, parameters).fetchone()[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_R140_after_300_000_messages_and_with_an_old_snapshot_it_is_as_fast_as_new(
    url: str,
) -> None:
    with (
        PostgresMailbox("orders", bytes, url=url) as used,
        PostgresMailbox("orders", bytes, url=shared_server().database()) as new,
    ):
        pass_through(used, 150_000)
        after = ratio(used, new)
        with old_snapshot(url):
            pass_through(used, 150_000)
            beside = ratio(used, new)
        print(f"after 150,000: {after:.2f}; with an old snapshot: {beside:.2f}")
        assert after <= RATIO_MAX
        assert beside <= RATIO_MAX


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_R140_with_a_million_waiting_it_is_as_fast_as_empty(url: str) -> None:
    with (
        PostgresMailbox("orders", bytes, url=url) as full,
        PostgresMailbox("orders", bytes, url=shared_server().database()) as empty,
    ):
        for _ in range(1_000):
            full.send_many([b"x" * 100] * 1_000)
        found = ratio(full, empty)
        print(f"with a million waiting: {found:.2f}")
        assert found <= RATIO_MAX
