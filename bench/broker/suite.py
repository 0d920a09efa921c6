"""What this suite measures, in order."""

from __future__ import annotations

from bench.broker import clients, effort, parked, queues, send
from bench.harness import Benchmark, Sized


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [
        send.not_durable(sized),
        send.durable(sized),
        clients.python(sized),
        parked.parked(sized),
        queues.queues(sized),
        effort.effort(sized),
    ]
