"""What this suite measures, in order."""

from __future__ import annotations

from bench.harness import Benchmark, Sized
from bench.worker.race import no_op_tasks


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [no_op_tasks(sized)]
