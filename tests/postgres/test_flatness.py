"""R140: a queue stays as fast as it was new, however much has passed through it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import psycopg
import pytest

from pillarbox import PostgresMailbox

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


def test_R140_a_claim_does_not_walk_what_is_dead(url: str) -> None:
    """By the pages it reads, which no load of the machine changes. Control: without the mark."""
    with PostgresMailbox("orders", bytes, url=url) as box:
        box.send(b"first")
        with old_snapshot(url):
            pass_through(box, 5_000)
            box.send(b"x")
            low_water = box._verbs.low_water
            start = low_water.start()
            while start.whole:
                assert box.receive(visibility_timeout=0)
                start = low_water.start()
            (mark,) = low_water._marks.values()
            assert pages(url, mark) < 20
            assert pages(url, 0) > 100


def pages(url: str, rank: int) -> int:
    """How many pages the scan of a claim reads that starts at this rank."""
    statement = (
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT id FROM pillarbox.messages "
        "WHERE queue = 1 AND state = 0 AND rank >= %s ORDER BY rank LIMIT 1"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        row = connection.execute(statement, (rank,)).fetchone()
        assert row is not None
        return int(row[0][0]["Plan"]["Shared Hit Blocks"])


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_R140_after_300_000_messages_and_with_an_old_snapshot_it_is_as_fast_as_new(
    url: str,
) -> None:
    from pillarbox.testing.postgres import shared_server

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
    from pillarbox.testing.postgres import shared_server

    with (
        PostgresMailbox("orders", bytes, url=url) as full,
        PostgresMailbox("orders", bytes, url=shared_server().database()) as empty,
    ):
        for _ in range(1_000):
            full.send_many([b"x" * 100] * 1_000)
        found = ratio(full, empty)
        print(f"with a million waiting: {found:.2f}")
        assert found <= RATIO_MAX
