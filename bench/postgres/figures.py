"""Figures that no peer is needed for: how soon a sleeper wakes, and a send in a transaction.

This module as a program measures them and prints them as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import psycopg

from bench import mailboxes
from bench.harness import Figure, Probe, Sized
from bench.mailboxes import BODY, QUEUE
from bench.postgres.contestants import PILLARBOX, conninfo, database
from pillarbox.mailbox.postgres import PostgresMailbox
from pillarbox.mailbox.postgres.listener import listener_for


def waking(sized: Sized) -> Probe:
    return Probe(
        "a parked receiver wakes",
        "bench.postgres.figures",
        ("waking", str(sized(500))),
        (Figure("p50_ms", "p50", "ms", at_most=3), Figure("p99_ms", "p99", "ms")),
    )


def in_a_transaction(sized: Sized) -> Probe:
    return Probe(
        "a send inside the caller's transaction",
        "bench.postgres.figures",
        ("transaction", str(sized(1_000))),
        (
            Figure("alone_us", "a send alone", "us"),
            Figure("insert_us", "a transaction with one INSERT", "us"),
            Figure("both_us", "the same with a send in it", "us"),
            Figure("ratio", "what it adds to a send alone", "x", at_most=0.9),
        ),
    )


def measure_waking(times: int) -> dict[str, float]:
    url = database(PILLARBOX)
    with PostgresMailbox(QUEUE, str, url=url) as box:
        listener = listener_for(conninfo(url))
        verbs = box._verbs
        found = mailboxes.measure_waking(box, lambda: listener.parked(verbs.queue_id) > 0, times)
        listener.release()
    return found


def measure_transaction(times: int) -> dict[str, float]:
    url = database(PILLARBOX)
    costs: dict[str, list[float]] = {"alone_us": [], "insert_us": [], "both_us": []}
    with (
        PostgresMailbox(QUEUE, str, url=url) as box,
        psycopg.connect(url, prepare_threshold=2) as connection,
    ):
        connection.execute("CREATE TABLE orders (body text)")
        connection.commit()

        def insert(*, send: bool) -> None:
            connection.execute("INSERT INTO orders VALUES (%s)", (BODY,))
            if send:
                box.send(BODY, connection=connection)
            connection.commit()

        ways: dict[str, Callable[[], object]] = {
            "alone_us": lambda: box.send(BODY),
            "insert_us": lambda: insert(send=False),
            "both_us": lambda: insert(send=True),
        }
        for _ in range(times):  # by turns, so that a noisy machine is noisy for all
            for name, way in ways.items():
                start = perf_counter()
                way()
                costs[name].append((perf_counter() - start) * 1e6)
    found = {name: median(each) for name, each in costs.items()}
    return found | {"ratio": (found["both_us"] - found["insert_us"]) / found["alone_us"]}


MEASURES: dict[str, Callable[[int], dict[str, float]]] = {
    "waking": measure_waking,
    "transaction": measure_transaction,
}


if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](int(sys.argv[2]))))
