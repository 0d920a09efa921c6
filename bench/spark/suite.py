"""What this suite measures, in order."""

from __future__ import annotations

from bench.harness import Benchmark, Sized
from bench.spark import figures, reading, streaming


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [
        reading.reading(sized),
        streaming.copying(sized),
        streaming.stepping(sized),
        figures.latency(sized),
        figures.cores(sized),
    ]
