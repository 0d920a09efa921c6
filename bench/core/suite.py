"""What this suite measures, in order."""

from __future__ import annotations

from bench.core import cycle, depth, footprint, options, threads
from bench.harness import Benchmark, Sized


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [
        cycle.one_thread(sized),
        cycle.event_loop(sized),
        threads.two_and_two(sized),
        cycle.batches(sized),
        depth.waiting(sized),
        footprint.memory(sized),
        footprint.pauses(sized),
        options.costs(sized),
    ]
