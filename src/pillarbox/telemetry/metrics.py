"""Prometheus metrics of workers, counted from what they tell their dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pillarbox.extras import extra
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.events import LeaseLost, ReceiveFailed, TaskEnded, TaskStarted

with extra("telemetry", "telemetry"):
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800)


def measure(dispatcher: Dispatcher, *, registry: Any = None) -> Callable[[], None]:
    """Count what this dispatcher's workers do; the answer ends this and forgets the figures."""
    figures = _Figures(registry or REGISTRY)
    ends = [
        dispatcher.subscribe(TaskStarted, figures.start),
        dispatcher.subscribe(TaskEnded, figures.end),
        dispatcher.subscribe(LeaseLost, figures.lose),
        dispatcher.subscribe(ReceiveFailed, figures.fail),
    ]

    def stop() -> None:
        for end in ends:
            end()
        figures.unregister()

    return stop


class _Figures:
    def __init__(self, registry: Any) -> None:
        self._registry = registry

        def make(kind: Any, name: str, what: str, *labels: str, **options: Any) -> Any:
            return kind(
                f"pillarbox_worker_{name}", what, ("queue", *labels), registry=registry, **options
            )

        self._tasks = make(Counter, "tasks", "Messages handled, by what became of them", "outcome")
        self._running = make(Gauge, "tasks_running", "Handlers that run now")
        self._lost = make(Counter, "leases_lost", "Leases that ended while a handler ran")
        self._failed = make(Counter, "receive_failures", "Receives that the mailbox did not answer")
        self._duration = make(
            Histogram, "task_duration_seconds", "How long handlers ran", buckets=_SECONDS
        )
        self._wait = make(
            Histogram, "task_wait_seconds", "From the send to the handler", buckets=_SECONDS
        )
        self._all = (
            self._tasks,
            self._running,
            self._lost,
            self._failed,
            self._duration,
            self._wait,
        )

    def start(self, event: TaskStarted) -> None:
        queue = event.job.queue
        self._running.labels(queue).inc()
        if event.job.delivery_count == 1:
            waited = (datetime.now(UTC) - event.job.enqueued_at).total_seconds()
            self._wait.labels(queue).observe(max(0.0, waited))

    def end(self, event: TaskEnded) -> None:
        queue = event.job.queue
        self._running.labels(queue).dec()
        self._tasks.labels(queue, event.outcome).inc()
        self._duration.labels(queue).observe(event.seconds)

    def lose(self, event: LeaseLost) -> None:
        self._lost.labels(event.job.queue).inc()

    def fail(self, event: ReceiveFailed) -> None:
        self._failed.labels(event.queue).inc()

    def unregister(self) -> None:
        for each in self._all:
            self._registry.unregister(each)
