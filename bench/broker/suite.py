"""What this suite measures, in order."""

from __future__ import annotations

from bench.broker import clients, effort, parked, queues, shared, sqs
from bench.harness import Benchmark, Sized


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [
        sqs.sends(sized),
        sqs.batches(sized),
        sqs.lives(sized),
        clients.python(sized),
        parked.parked(sized),
        queues.queues(sized),
        effort.effort(sized),
        shared.shared(sized),
    ]
