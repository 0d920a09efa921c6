"""Prometheus metrics of workers, counted from the events of their dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from pillarbox.extras import extra
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.job import LeaseLost, ReceiveFailed, TaskEnded, TaskStarted
from pillarbox.worker.stats import DURATION_SECONDS

with extra("telemetry", "telemetry"):
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram


def measure(dispatcher: Dispatcher, *, registry: Any = None) -> Callable[[], None]:
    """Count the events of a dispatcher; return a function that stops and unregisters."""
    stopping = ExitStack()
    metrics = _Metrics(registry or REGISTRY, stopping)
    stopping.callback(dispatcher.subscribe(TaskStarted, metrics.start))
    stopping.callback(dispatcher.subscribe(TaskEnded, metrics.end))
    stopping.callback(dispatcher.subscribe(LeaseLost, metrics.lose))
    stopping.callback(dispatcher.subscribe(ReceiveFailed, metrics.fail))
    return stopping.close


class _Metrics:
    def __init__(self, registry: Any, stopping: ExitStack) -> None:
        def make(kind: Any, name: str, what: str, *labels: str, **options: Any) -> Any:
            metric = kind(
                f"pillarbox_worker_{name}", what, ("queue", *labels), registry=registry, **options
            )
            stopping.callback(registry.unregister, metric)
            return metric

        self._tasks = make(Counter, "tasks", "Messages handled, by outcome", "outcome")
        self._running = make(Gauge, "tasks_running", "Handlers running now")
        self._lost = make(Counter, "leases_lost", "Leases lost while a handler ran")
        self._failed = make(Counter, "receive_failures", "Failed receives")
        self._duration = make(
            Histogram, "task_duration_seconds", "Duration of handlers", buckets=DURATION_SECONDS
        )
        self._wait = make(
            Histogram, "task_wait_seconds", "Time from send to handler", buckets=DURATION_SECONDS
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
