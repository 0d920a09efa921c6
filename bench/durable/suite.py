"""What this suite measures, in order."""

from __future__ import annotations

from bench.durable import cycle, depth, footprint, history, recovery, send
from bench.harness import Benchmark, Sized


def benchmarks(sized: Sized) -> list[Benchmark]:
    return [
        send.one_producer_synced(sized),
        send.many_producers_synced(sized),
        send.one_producer_unsynced(sized),
        cycle.one_thread_synced(sized),
        cycle.many_threads_synced(sized),
        cycle.one_thread_unsynced(sized),
        recovery.opening(sized),
        footprint.disk(sized),
        depth.waiting(sized),
        history.arrow(sized),
    ]
