"""Figures that no peer is needed for: cycles a second, how soon a sleeper wakes, long lines.

This module as a program measures them, on a server of its own, and prints them as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

from bench import mailboxes
from bench.harness import ROUNDS, Figure, Probe, Sized
from bench.mailboxes import BODY, QUEUE
from bench.redis.contestants import server
from pillarbox.mailbox.redis import RedisMailbox

BATCH = 100
DEPTHS = (1_000, 100_000, 1_000_000)
FILL = 5_000


def speed(sized: Sized) -> Probe:
    return Probe(
        "one client, batches of 100",
        "bench.redis.figures",
        ("speed", str(sized(50_000))),
        (Figure("cycles", "full cycles", "/s", at_least=25_000),),
    )


def waking(sized: Sized) -> Probe:
    return Probe(
        "a parked receiver wakes",
        "bench.redis.figures",
        ("waking", str(sized(1_000))),
        (
            Figure("p50_ms", "p50", "ms", at_most=1.5),
            Figure("p99_ms", "p99", "ms"),
        ),
    )


def waiting(sized: Sized) -> Probe:
    depths = [sized(depth) for depth in DEPTHS]
    return Probe(
        "full cycle behind a long line, batches of 100",
        "bench.redis.figures",
        ("waiting", str(sized(10_000)), *map(str, depths)),
        (
            *(Figure(str(depth), f"{depth:,} waiting", "us") for depth in depths),
            *(
                Figure(f"{depth}_ratio", f"{depth:,} to {depths[0]:,}", "x", at_most=1.3)
                for depth in depths[1:]
            ),
        ),
    )


def _cycle(box: RedisMailbox[str], messages: int) -> float:
    """Seconds for each message."""
    start = perf_counter()
    for _ in range(max(1, messages // BATCH)):
        box.send_many([BODY] * BATCH)
        box.acknowledge_many(box.receive(max_messages=BATCH))
    return (perf_counter() - start) / max(BATCH, messages // BATCH * BATCH)


def measure_speed(messages: int) -> dict[str, float]:
    with server() as place, RedisMailbox(QUEUE, str, url=f"{place.url}/-") as box:
        _cycle(box, BATCH)
        return {"cycles": 1 / median(_cycle(box, messages) for _ in range(ROUNDS))}


def measure_waking(times: int) -> dict[str, float]:
    with server() as place, RedisMailbox(QUEUE, str, url=f"{place.url}/-") as box:
        return mailboxes.measure_waking(box, lambda: place.blocked() != [], times)


def measure_waiting(messages: int, *depths: int) -> dict[str, float]:
    costs: dict[int, list[float]] = {depth: [] for depth in depths}
    with server() as place:
        boxes = [RedisMailbox(f"{QUEUE}-{depth}", str, url=f"{place.url}/-") for depth in depths]
        for box, depth in zip(boxes, depths, strict=True):
            for first in range(0, depth, FILL):
                box.send_many([BODY] * min(FILL, depth - first))
            _cycle(box, BATCH)
        for _ in range(ROUNDS):
            for box, depth in zip(boxes, depths, strict=True):
                costs[depth].append(_cycle(box, messages) * 1e6)
        for box in boxes:
            box.close()
    found = {str(depth): median(costs[depth]) for depth in depths}
    for depth in depths[1:]:
        pairs = zip(costs[depth], costs[depths[0]], strict=True)
        found[f"{depth}_ratio"] = median(mine / theirs for mine, theirs in pairs)
    return found


MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "speed": measure_speed,
    "waking": measure_waking,
    "waiting": measure_waiting,
}


if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](*map(int, sys.argv[2:]))))
