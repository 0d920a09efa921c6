"""R102: traces and metrics are subscribers; they see what happens and can't harm it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry, generate_latest

from pillarbox import DeadLetterPolicy, InMemoryMailbox
from pillarbox.telemetry import measure, sending, trace
from pillarbox.worker import Dispatcher, Job, LeaseLost, ReceiveFailed, RetryPolicy, Worker
from tests.worker.conftest import Place, eventually

Running = Callable[..., threading.Thread]


class Watched:
    """Spans in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.dispatcher = Dispatcher()
        self.stop = trace(self.dispatcher, provider=self.provider)

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.kind is kind]


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_R102_the_consumers_span_is_a_child_of_the_producers(
    place: Place, running: Running, watched: Watched, kind: str
) -> None:
    box = place.open("orders")
    seen: list[tuple[Any, dict[str, str]]] = []

    def plain(body: str, job: Job[str]) -> None:
        seen.append((api.get_current_span().get_span_context(), dict(job.attributes)))

    async def coroutine(body: str, job: Job[str]) -> None:
        await asyncio.sleep(0.001)
        plain(body, job)

    handler = plain if kind == "thread" else coroutine
    running(Worker(box, handler, concurrency=4, dispatcher=watched.dispatcher))
    ids = []
    for number in range(8):
        with sending(box.name, {"shop": "ada"}, provider=watched.provider) as attributes:
            ids.append(box.send(str(number), attributes=attributes))
    eventually(lambda: box.approximate_count() == 0)
    sent, handled = watched.spans(SpanKind.PRODUCER), watched.spans(SpanKind.CONSUMER)
    assert len(sent) == len(handled) == 8
    by_parent = {span.parent.span_id: span for span in handled if span.parent}
    for span, message_id in zip(sent, ids, strict=True):
        consumer = by_parent[span.context.span_id]
        assert consumer.context.trace_id == span.context.trace_id
        assert consumer.attributes is not None
        assert consumer.attributes["messaging.message.id"] == message_id
        assert consumer.name == f"process {box.name}"
        assert consumer.attributes["messaging.system"] == "pillarbox"
        assert consumer.attributes["messaging.operation.type"] == "process"
        assert consumer.attributes["messaging.destination.name"] == box.name
    assert {context.span_id for context, _ in seen} == {span.context.span_id for span in handled}
    assert all(
        noted["shop"] == "ada" and noted["traceparent"].startswith("00-") for _, noted in seen
    )
    assert not api.get_current_span().get_span_context().is_valid


def test_R102_a_failed_handler_ends_its_span_with_the_error(
    running: Running, watched: Watched
) -> None:
    box = InMemoryMailbox("orders", str, dead_letters=DeadLetterPolicy(1))

    def fail(body: str) -> None:
        raise ValueError("no such tea")

    running(Worker(box, fail, dispatcher=watched.dispatcher))
    box.send("mud")
    eventually(lambda: box.stats().dead == 1)
    (span,) = watched.spans(SpanKind.CONSUMER)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ValueError"
    assert span.events[0].name == "exception"
    assert span.parent is None


def test_R102_tracing_stops_when_told(running: Running, watched: Watched) -> None:
    box = InMemoryMailbox("orders", str)
    watched.stop()
    running(Worker(box, lambda body: None, dispatcher=watched.dispatcher))
    box.send("a")
    eventually(lambda: box.approximate_count() == 0)
    assert watched.spans(SpanKind.CONSUMER) == []


def test_R102_metrics_count_what_became_of_each_message(running: Running) -> None:
    registry, dispatcher = CollectorRegistry(), Dispatcher()
    stop = measure(dispatcher, registry=registry)
    box = InMemoryMailbox("orders", str, dead_letters=DeadLetterPolicy(2))

    def handle(body: str) -> None:
        if body == "bad":
            raise ValueError("no such tea")

    retry = RetryPolicy(retries=1, backoff=0)
    running(Worker(box, handle, concurrency=2, retry=retry, dispatcher=dispatcher))
    box.send_many(["good", "good", "bad"])
    eventually(lambda: box.approximate_count() == 0)
    job: Any = type("Job", (), {"queue": "orders"})()
    dispatcher.publish(LeaseLost(job, "it ran out"))
    dispatcher.publish(ReceiveFailed("orders", OSError()))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"pillarbox_worker_{name}", {"queue": "orders"} | labels)

    assert value("tasks_total", outcome="succeeded") == 2
    assert value("tasks_total", outcome="retried") == 1
    assert value("tasks_total", outcome="dead") == 1
    assert value("tasks_running") == 0
    assert value("task_duration_seconds_count") == 4
    assert value("task_wait_seconds_count") == 3
    assert value("leases_lost_total") == 1
    assert value("receive_failures_total") == 1
    stop()
    assert generate_latest(registry) == b""
