"""OpenTelemetry spans for messages, following the semantic conventions for messaging.

`sending` starts a producer span; messages sent inside carry its context. `trace` starts a consumer
span for each message that a worker handles, a child of the sender's; it is the current span while
the handler runs. Workers call `trace` by themselves if the program uses OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from pillarbox.extras import extra
from pillarbox.tracing import SYSTEM, sender_context, span_attributes, with_context
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.job import Job, LeaseLost, TaskEnded, TaskStarted

with extra("telemetry", "telemetry"):
    from opentelemetry import context as otel
    from opentelemetry import trace as api


@contextmanager
def sending(
    queue: str, attributes: Mapping[str, str] | None = None, *, provider: Any = None
) -> Iterator[dict[str, str]]:
    """Start a producer span; yield the attributes to send with the message.

    Examples:
        >>> from pillarbox import InMemoryMailbox
        >>> orders = InMemoryMailbox("orders", str)
        >>> with sending(orders.name, {"shop": "ada"}) as attributes:
        ...     _ = orders.send("tea", attributes=attributes)
    """
    with api.get_tracer(SYSTEM, tracer_provider=provider).start_as_current_span(
        f"send {queue}",
        kind=api.SpanKind.PRODUCER,
        attributes=span_attributes("send", "send", queue),
    ):
        yield dict(with_context(attributes) or {})


def trace(dispatcher: Dispatcher, *, provider: Any = None) -> Callable[[], None]:
    """Start a span for each message that is handled; return a function to stop that.

    To use a provider other than the global one, call this before the worker runs.
    """
    dispatcher.traced = True
    spans = _Spans(api.get_tracer(SYSTEM, tracer_provider=provider))
    stopping = ExitStack()
    stopping.callback(dispatcher.subscribe(TaskStarted, spans.begin))
    stopping.callback(dispatcher.subscribe(TaskEnded, spans.end))
    stopping.callback(dispatcher.subscribe(LeaseLost, spans.lose))
    return stopping.close


class _Spans:
    """The spans of running handlers. The events of a job come from one thread or task."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._open: dict[int, tuple[Any, Any]] = {}  # by job: its span and context token

    def begin(self, event: TaskStarted) -> None:
        job: Job[Any] = event.job
        span = self._tracer.start_span(
            f"process {job.queue}",
            context=sender_context(job.attributes),
            kind=api.SpanKind.CONSUMER,
            attributes=span_attributes("process", "process", job.queue)
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
        span, _ = self._open.get(id(event.job), (None, None))
        if span is not None:
            span.add_event("lease lost", {"why": event.why})
