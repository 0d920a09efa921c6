"""Memory of a long line, and how long the collector stops the world for it.

Both are measured in a process of their own, which is this module run as a program. All
messages share one body, so that only what Pillarbox adds to it is counted.
"""

from __future__ import annotations

import argparse
import gc
import json
import tracemalloc
from pathlib import Path
from resource import RUSAGE_SELF, getpagesize, getrusage
from time import perf_counter_ns

from bench.harness import Figure, Probe, Sized
from pillarbox import InMemoryMailbox

DEPTH = 5_000_000
CHUNK = 10_000
BODY = b"an order for two pillar boxes, red"
COLLECTIONS = 5
CYCLES = 500_000
IN_HAND = 1_000
TRACED_PART = 10  # of all messages: tracing makes each of them slow and large


def memory(sized: Sized) -> Probe:
    depth = sized(DEPTH)
    return Probe(
        f"memory of {depth:,} waiting messages, without their bodies",
        "bench.core.footprint",
        ("memory", str(depth)),
        (
            Figure("resident", "growth of the process, a message", "bytes", at_most=120),
            Figure("traced", "allocated by Python, a message", "bytes"),
        ),
    )


def pauses(sized: Sized) -> Probe:
    depth = sized(DEPTH)
    return Probe(
        f"collector pauses with {depth:,} waiting messages",
        "bench.core.footprint",
        ("pauses", str(depth)),
        (
            Figure("longest", "longest of all", "ms", at_most=300),
            Figure("full", "longest that was asked for (a full one)", "ms"),
            Figure("automatic", "longest that came by itself while cycling", "ms"),
            Figure("automatic_count", "collections that came by themselves", ""),
        ),
    )


def _fill(box: InMemoryMailbox[bytes], depth: int) -> None:
    for start in range(0, depth, CHUNK):
        box.send_many([BODY] * min(CHUNK, depth - start))


def _resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * getpagesize()
    return getrusage(RUSAGE_SELF).ru_maxrss  # the peak, in bytes on macOS


def measure_memory(depth: int) -> dict[str, float]:
    warm: InMemoryMailbox[bytes] = InMemoryMailbox("warm-up", bytes)
    _fill(warm, CHUNK)  # kept, or its memory would be used again and not show as growth
    box: InMemoryMailbox[bytes] = InMemoryMailbox("bench", bytes)
    gc.collect()
    before = _resident_bytes()
    _fill(box, depth)
    gc.collect()
    resident = (_resident_bytes() - before) / depth
    box.purge()
    warm.purge()
    part = max(1, depth // TRACED_PART)
    tracemalloc.start()
    _fill(box, part)
    gc.collect()
    traced, _ = tracemalloc.get_traced_memory()
    return {"resident": resident, "traced": traced / part}


def measure_pauses(depth: int) -> dict[str, float]:
    box: InMemoryMailbox[bytes] = InMemoryMailbox("bench", bytes)
    _fill(box, depth)
    pauses_ns: list[int] = []
    started = 0

    def watch(phase: str, _: dict[str, int]) -> None:
        nonlocal started
        if phase == "start":
            started = perf_counter_ns()
        else:
            pauses_ns.append(perf_counter_ns() - started)

    gc.callbacks.append(watch)
    for _ in range(0, CYCLES, IN_HAND):  # single cycles leave nothing that sets off the collector
        box.send_many([BODY] * IN_HAND)
        box.acknowledge_many(box.receive(max_messages=IN_HAND))
    automatic, pauses_ns = pauses_ns, []
    for _ in range(COLLECTIONS):
        gc.collect()
    gc.callbacks.remove(watch)
    longest_full = max(pauses_ns) / 1e6
    longest_automatic = max(automatic, default=0) / 1e6
    return {
        "longest": max(longest_full, longest_automatic),
        "full": longest_full,
        "automatic": longest_automatic,
        "automatic_count": len(automatic),
    }


def main() -> None:
    measures = {"memory": measure_memory, "pauses": measure_pauses}
    parser = argparse.ArgumentParser(prog="python -m bench.core.footprint", description=__doc__)
    parser.add_argument("what", choices=measures)
    parser.add_argument("depth", type=int)
    chosen = parser.parse_args()
    print(json.dumps(measures[chosen.what](chosen.depth)))


if __name__ == "__main__":
    main()
