"""The OpenTelemetry context of messages, for programs that use OpenTelemetry.

Nothing here imports it: before the program does, there is no current span to carry. The context
travels as the attributes `traceparent` and `tracestate`, as W3C and other SQS clients have it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pillarbox.core.limits import ATTRIBUTES_MAX

SYSTEM = "pillarbox"
API = "opentelemetry.trace"
_TRACEPARENT = "traceparent"
_NOTHING: AbstractContextManager[None] = nullcontext()


def active() -> bool:
    """Return whether the program has loaded OpenTelemetry."""
    return hasattr(sys.modules.get(API), "get_current_span")


def with_context(attributes: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the attributes of a message to send, with the context of the current span, if any."""
    api = sys.modules.get(API)
    if api is None or not active() or not api.get_current_span().get_span_context().is_valid:
        return attributes
    carried = dict(attributes or {})
    if _TRACEPARENT in carried or len(carried) > ATTRIBUTES_MAX - 2:
        return attributes
    _propagator().inject(carried)
    return carried


def sender_context(attributes: Mapping[str, str] | None) -> Any:
    """Return the context of a message's sender, as the parent of a span."""
    return _propagator().extract(attributes or {})


def span_attributes(operation: str, kind: str, queue: str) -> dict[str, Any]:
    """Return the attributes of a span, as the semantic conventions for messaging name them."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def accepting(queue: str, attributes: Mapping[str, str] | None) -> AbstractContextManager[object]:
    """Return the span of a broker accepting a message; no span without a context."""
    if not attributes or _TRACEPARENT not in attributes or not active():
        return _NOTHING
    api: Any = sys.modules[API]
    span: AbstractContextManager[object] = api.get_tracer(SYSTEM).start_as_current_span(
        f"accept {queue}",
        context=sender_context(attributes),
        kind=api.SpanKind.SERVER,
        attributes=span_attributes("accept", "send", queue),
    )
    return span


def _propagator() -> Any:
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415 - loaded by the program

    return tracecontext.TraceContextTextMapPropagator()
