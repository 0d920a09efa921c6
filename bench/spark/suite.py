"""What this suite measures, in order."""

from __future__ import annotations

from bench.harness import Benchmark, Sized
from bench.spark import figures, pipelines, reading, streaming


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [
        pipelines.stateless(sized),
        pipelines.aggregation(sized),
        pipelines.chain(sized),
        pipelines.history(sized),
        pipelines.small_steps(sized),
        pipelines.reading(sized),
        reading.reading(sized),
        streaming.copying(sized),
        streaming.stepping(sized),
        figures.latency(sized),
        figures.cores(sized),
    ]
