"""R102: in a program that uses OpenTelemetry, a message is one trace without further code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# What a user's program does: it configures OpenTelemetry and has a span of its own.
PROGRAM = """
import json, sys, threading
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pillarbox import open_mailbox
from pillarbox.testing.broker import running_broker
from pillarbox.worker import Worker

exporter = InMemorySpanExporter()
if sys.argv[2] == "configured":
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

with running_broker() as broker:
    url = sys.argv[1].format(broker=broker)
    orders = open_mailbox(f"{url}/orders", str, create=True)
    parcels = open_mailbox(f"{url}/parcels", str, create=True)
    done = threading.Event()

    def pack(order):
        parcels.send(order)

    async def post(parcel):
        done.set()

    workers = [Worker(orders, pack), Worker(parcels, post)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    with trace.get_tracer("shop").start_as_current_span("checkout"):
        (orders.send_many if "many" in sys.argv else lambda bodies: orders.send(*bodies))(["tea"])
    done.wait(30)
    for worker in workers:
        worker.stop()
    for thread in threads:
        thread.join()
    orders.send("without a span")
    (last,) = orders.receive(wait_time_seconds=5)
    assert "traceparent" not in last.attributes

print(json.dumps([
    [span.name, span.kind.name, f"{span.context.trace_id:x}", span.context.span_id,
     span.parent and span.parent.span_id]
    for span in exporter.get_finished_spans()
]))
"""


def spans(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name: rest for name, *rest in json.loads(done.stdout)}


@pytest.mark.parametrize("how", ["one", "many"])
@pytest.mark.parametrize("url", ["{broker}", "sqs+{broker}"], ids=["native", "sqs"])
def test_R102_send_broker_and_handlers_are_one_trace(url: str, how: str) -> None:
    found = spans(url, "configured", how)
    assert {name: kind for name, (kind, *_) in found.items()} == {
        "checkout": "INTERNAL",
        "accept orders": "SERVER",
        "process orders": "CONSUMER",
        "accept parcels": "SERVER",
        "process parcels": "CONSUMER",
    }
    assert len({trace for _, trace, *_ in found.values()}) == 1
    parents = {name: parent for name, (*_, parent) in found.items()}
    ids = {name: span for name, (_, _, span, _) in found.items()}
    assert parents["accept orders"] == parents["process orders"] == ids["checkout"]
    assert parents["accept parcels"] == parents["process parcels"] == ids["process orders"]


def test_R102_without_a_configured_provider_nothing_is_recorded_and_everything_works() -> None:
    """Control: the spans above come from OpenTelemetry."""
    assert spans("{broker}", "bare") == {}


@pytest.mark.parametrize("how", ["one", "many"])
@pytest.mark.parametrize("url", ["memory:", "file:{tmp}"])
def test_R102_a_mailbox_of_this_process_carries_the_context(
    url: str, how: str, tmp_path: Path
) -> None:
    program = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pillarbox import open_mailbox

trace.set_tracer_provider(TracerProvider())
with open_mailbox(sys.argv[1], str) as box:
    box.send("without a span")
    (before,) = box.receive()
    before.acknowledge()
    with trace.get_tracer("shop").start_as_current_span("checkout"):
        box.send("tea") if sys.argv[2] == "one" else box.send_many(["tea"])
    (message,) = box.receive()
    print("traceparent" in before.attributes, "traceparent" in message.attributes)
"""
    where = f"{url.format(tmp=tmp_path)}{'/' if 'file' in url else ''}orders"
    done = subprocess.run(
        [sys.executable, "-c", program, where, how],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("False True\n", "")
