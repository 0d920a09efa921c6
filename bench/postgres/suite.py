"""What this suite measures, in order."""

from __future__ import annotations

from bench.harness import Benchmark, Sized
from bench.postgres import cycle, figures


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [
        cycle.one_at_a_time(sized),
        cycle.in_hundreds(sized),
        cycle.by_eight(sized),
        figures.waking(sized),
        figures.in_a_transaction(sized),
    ]
