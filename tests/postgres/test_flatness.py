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
MESSAGES = 5_000_000  # of a soak test


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


@pytest.mark.parametrize("tenant", [None, "one"])
@pytest.mark.parametrize("analysed", [False, True], ids=["", "analysed"])
def test_R140_a_step_of_a_redrive_does_not_walk_the_queue(
    url: str, analysed: bool, tenant: str | None
) -> None:
    with PostgresMailbox("orders", bytes, url=url, fair=True) as box:
        for _ in range(20):
            box.send_many([b"x" * 100] * 1_000, group=tenant)
        with psycopg.connect(url, autocommit=True) as connection:
            if analysed:
                connection.execute("ANALYZE pillarbox.messages")
            statement = "SELECT pillarbox.page(1, -1, 0, 100)"
            pages(connection, statement, {})  # what a first call reads is not of the queue
            assert pages(connection, statement, {}) < PAGES_MAX


def pages(connection: Any, statement: str, parameters: dict[str, Any]) -> int:
    """How many pages a statement reads, with the functions that it calls."""
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
    plan = connection.execute(explain, parameters).fetchone()[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_R140_after_five_million_messages_and_with_an_old_snapshot_it_is_as_fast_as_new(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        PostgresMailbox("orders", bytes, url=url) as used,
        PostgresMailbox("orders", bytes, url=shared_server().database()) as new,
    ):
        for step in range(10):
            pass_through(used, MESSAGES // 10)
            tell(capsys, f"{(step + 1) * MESSAGES // 10:,} messages have passed")
        after = ratio(used, new)
        tell(capsys, f"after {MESSAGES:,}: {after:.2f} x a new queue")
        with old_snapshot(url):
            for step in range(5):
                pass_through(used, MESSAGES // 25)
                tell(capsys, f"{(step + 1) * MESSAGES // 25:,} more beside an old transaction")
            beside = ratio(used, new)
        tell(capsys, f"with an old transaction open: {beside:.2f} x a new queue")
        assert after <= RATIO_MAX
        assert beside <= RATIO_MAX


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_R140_with_one_and_five_million_waiting_it_is_as_fast_as_empty(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    with (
        PostgresMailbox("orders", bytes, url=url) as full,
        PostgresMailbox("orders", bytes, url=shared_server().database()) as empty,
    ):
        for step in range(10):
            for _ in range(MESSAGES // 10_000):
                full.send_many([b"x" * 100] * 1_000)
            waiting = (step + 1) * MESSAGES // 10
            tell(capsys, f"{waiting:,} wait")
            if waiting in (MESSAGES // 5, MESSAGES):
                found[waiting] = ratio(full, empty)
                tell(capsys, f"with {waiting:,} waiting: {found[waiting]:.2f} x an empty queue")
        with old_snapshot(url):
            pass_through(full, MESSAGES // 50)
            beside = ratio(full, empty)
        tell(capsys, f"and an old transaction open: {beside:.2f} x an empty queue")
    assert max(*found.values(), beside) <= RATIO_MAX


def tell(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Progress, while the test runs."""
    with capsys.disabled():
        print(f"  {time.strftime('%H:%M:%S')} {text}", flush=True)
