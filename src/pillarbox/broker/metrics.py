"""The broker's metrics, and /metrics for Prometheus.

Sessions count message events (`Totals`); requests and responses are counted here. Everything else
is computed for each scrape.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from pillarbox.broker.heartbeat import Traffic
from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Request, Response
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Lease
from pillarbox.mailbox.protocol import Stats
from pillarbox.mailbox.queue_steps import SLICE
from pillarbox.mailbox.totals import Totals

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS: Final = {"Content-Type": _TYPE, **NOT_FOR_OTHER_SITES}
_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_600)
_TOTALS: Final = ("sent", "received", "deleted", "dead", "expired", "redriven", "unread")
_TOTALS_SHARED: Final = ("sent", "received", "deleted")  # a shared store counts no others
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)


_NO_TRAFFIC: Final = Traffic()
_STATES: Final = ("ready", "scheduled", "in_flight")
_BY_QUEUE: Final = {
    "pillarbox_messages": ("gauge", "By state"),
    "pillarbox_oldest_message_seconds": ("gauge", "Age of the oldest in line"),
    **{f"pillarbox_messages_{name}_total": ("counter", f"Messages {name}") for name in _TOTALS},
}


class Histogram:
    """Counts by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        buckets, so_far = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            so_far += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), so_far))
        found = HistogramMetricFamily(name, text)
        found.add_metric([], buckets, self.total)
        return found


class Metrics:
    """All counters of a broker, and the handler of /metrics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.requests: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.parked = 0
        self.time_in_queue = Histogram(_SECONDS)
        self.confirm_seconds = Histogram(_SECONDS)
        self.confirm_batch = Histogram(_SIZES)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def of(self, queue: str) -> Totals:
        """Return a queue's event counts since the broker started, or since it was created."""
        return self._broker.store.sessions[queue].totals

    def delivered(self, leases: Sequence[Lease]) -> None:
        """Count messages that are delivered to a client."""
        for lease in leases:
            if lease.number == 1:
                self.time_in_queue.add((lease.leased_at - (lease.record.key << 1)) / SECOND_NS)

    def confirmed(self, seconds: float, answers: int) -> None:
        """Count a sync that confirmed this many responses."""
        self.confirm_seconds.add(seconds)
        self.confirm_batch.add(answers)

    async def handle(self, request: Request) -> Response:
        queues = await self._by_queue()
        return Response(200, queues + generate_latest(self._registry), _HEADERS)

    def collect(self) -> Iterable[Metric]:
        """Implement the collector interface of the Prometheus client."""
        yield self.time_in_queue.family(
            "pillarbox_time_in_queue_seconds", "From sending to the first receive"
        )
        yield self.confirm_seconds.family(
            "pillarbox_sync_seconds", "From writing an event to its confirmation on disk"
        )
        yield self.confirm_batch.family(
            "pillarbox_sync_batch_size", "How many answers one sync confirmed"
        )
        requests = CounterMetricFamily("pillarbox_requests", "By action", labels=["action"])
        for action, count in self.requests.items():
            requests.add_metric([action], count)
        errors = CounterMetricFamily("pillarbox_errors", "Errors answered", labels=["code"])
        for code, count in self.errors.items():
            errors.add_metric([code], count)
        yield requests
        yield errors
        yield _gauge("pillarbox_parked_polls", "Receives that wait", self.parked)
        connections = len(self._broker.http_server.connections)
        yield _gauge("pillarbox_connections", "Open connections", connections)

    async def _by_queue(self) -> bytes:
        """Render the metrics of each queue, with pauses for other requests.

        The client library would take a hundred times as long.
        """
        families = {name: [_head(name, *told)] for name, told in _BY_QUEUE.items()}
        shared = self._broker.shared
        if shared is not None:
            for name, stats in await shared.of_all(shared.stats):
                _add_shared(families, name, stats, shared.heartbeat.traffic.get(name, _NO_TRAFFIC))
        sessions = self._broker.store.sessions
        for number, name in enumerate(sorted(sessions), 1):
            session = sessions.get(name)
            if session is not None:
                *states, _, age = session.counts()
                _add_states(families, name, states, (age or 0) / SECOND_NS)
                for total in _TOTALS:
                    value = getattr(session.totals, total)
                    _add(families, f"pillarbox_messages_{total}_total", name, value)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return "".join(chain.from_iterable(families.values())).encode()


def _add_shared(families: dict[str, list[str]], name: str, stats: Stats, traffic: Traffic) -> None:
    counts = stats.ready, stats.scheduled, stats.in_flight
    _add_states(families, name, counts, stats.oldest_age_seconds)
    for total in _TOTALS_SHARED:
        _add(families, f"pillarbox_messages_{total}_total", name, getattr(traffic, total))


def _add_states(
    families: dict[str, list[str]], queue: str, counts: Sequence[int], age: float | None
) -> None:
    for state, count in zip(_STATES, counts, strict=True):
        line = f'pillarbox_messages{{queue="{queue}",state="{state}"}} {count}\n'
        families["pillarbox_messages"].append(line)
    _add(families, "pillarbox_oldest_message_seconds", queue, age or 0.0)


def _add(families: dict[str, list[str]], family: str, queue: str, value: float) -> None:
    families[family].append(f'{family}{{queue="{queue}"}} {value}\n')


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _gauge(name: str, text: str, value: float) -> Metric:
    family: Any = GaugeMetricFamily(name, text, value=value)
    return family  # type: ignore[no-any-return]
