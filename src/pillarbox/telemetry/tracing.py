"""OpenTelemetry spans for messages, following the semantic conventions for messaging.

`sending` starts a producer span and provides attributes with its W3C context. `trace` starts a
consumer span for each message that a worker handles, linked to the span of its sender; it is the
current span while the handler runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pillarbox.extras import extra
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.events import LeaseLost, TaskEnded, TaskStarted
from pillarbox.worker.job import Job

with extra("telemetry", "telemetry"):
    from opentelemetry import context as otel
    from opentelemetry import trace as api
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SYSTEM = "pillarbox"
_w3c = TraceContextTextMapPropagator()


def _tracer(provider: Any) -> Any:
    return api.get_tracer("pillarbox", tracer_provider=provider)


def _attributes(operation: str, kind: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


@contextmanager
def sending(
    queue: str, attributes: Mapping[str, str] | None = None, *, provider: Any = None
) -> Iterator[dict[str, str]]:
    """A producer span; yields the attributes to send with the message.

    Examples:
        >>> from pillarbox import InMemoryMailbox
        >>> orders = InMemoryMailbox("orders", str)
        >>> with sending(orders.name, {"shop": "ada"}) as attributes:
        ...     _ = orders.send("tea", attributes=attributes)
    """
    with _tracer(provider).start_as_current_span(
        f"send {queue}", kind=api.SpanKind.PRODUCER, attributes=_attributes("send", "send", queue)
    ):
        carried = dict(attributes or {})
        _w3c.inject(carried)
        yield carried


def trace(dispatcher: Dispatcher, *, provider: Any = None) -> Callable[[], None]:
    """Start a span for each message that is handled; returns a function that stops this."""
    spans = _Spans(_tracer(provider))
    unsubscribes = [
        dispatcher.subscribe(TaskStarted, spans.begin),
        dispatcher.subscribe(TaskEnded, spans.end),
        dispatcher.subscribe(LeaseLost, spans.lose),
    ]

    def stop() -> None:
        for unsubscribe in unsubscribes:
            unsubscribe()

    return stop


class _Spans:
    """The spans of running handlers. The events of a job come from one thread or task."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._open: dict[int, tuple[Any, Any]] = {}  # by job: its span and context token

    def begin(self, event: TaskStarted) -> None:
        job: Job[Any] = event.job
        sender = api.get_current_span(_w3c.extract(job.attributes)).get_span_context()
        span = self._tracer.start_span(
            f"process {job.queue}",
            context=otel.Context(),  # a link instead of a parent, as the conventions say
            kind=api.SpanKind.CONSUMER,
            links=[api.Link(sender)] if sender.is_valid else [],
            attributes=_attributes("process", "process", job.queue)
            | {
                "messaging.message.id": job.id,
                "messaging.pillarbox.delivery_count": job.delivery_count,
            },
        )
        token = otel.attach(api.set_span_in_context(span))
        self._open[id(job)] = span, token

    def end(self, event: TaskEnded) -> None:
        span, token = self._open.pop(id(event.job))
        otel.detach(token)
        span.set_attribute("messaging.pillarbox.outcome", event.outcome)
        if event.error is not None:
            span.record_exception(event.error)
            span.set_attribute("error.type", type(event.error).__qualname__)
            span.set_status(api.Status(api.StatusCode.ERROR, str(event.error)))
        span.end()

    def lose(self, event: LeaseLost) -> None:
        found = self._open.get(id(event.job))
        if found is not None:
            found[0].add_event("lease lost", {"why": event.why})
