"""What this suite measures, in order."""

from __future__ import annotations

from bench.harness import Benchmark, Sized
from bench.redis import cycle, figures


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [
        cycle.one_at_a_time(sized),
        cycle.in_tens(sized),
        cycle.in_hundreds(sized),
        figures.speed(sized),
        figures.waking(sized),
        figures.waiting(sized),
    ]
