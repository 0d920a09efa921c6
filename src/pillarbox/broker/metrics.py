"""What the broker counts, and /metrics, where Prometheus reads it.

Counting is plain addition on the event loop; all the rest happens when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Request, Response
from pillarbox.core.events import Died, DiedInLine, Event
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Lease

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS: Final = {"Content-Type": _TYPE, **NOT_FOR_OTHER_SITES}
_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_600)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)


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


class Totals:
    """What happened to one queue since the broker started."""

    __slots__ = ("dead", "deleted", "received", "sent", "unread")

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.deleted = 0
        self.dead = 0
        self.unread = 0  # given back because the client hung up


class Metrics:
    """All counts of a broker, and the handler that tells them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._totals: dict[str, Totals] = {}
        self.requests: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.parked = 0
        self.unconfirmed = 0
        self.time_in_queue = Histogram(_SECONDS)
        self.confirm_seconds = Histogram(_SECONDS)
        self.confirm_batch = Histogram(_SIZES)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def of(self, queue: str) -> Totals:
        totals = self._totals.get(queue)
        if totals is None:
            totals = self._totals[queue] = Totals()
            desk = self._broker.store.desks.get(queue)
            if desk is not None and desk.told is None:
                desk.told = lambda events, _: self._told(totals, events)
        return totals

    def forget(self, queue: str) -> None:
        self._totals.pop(queue, None)

    def received(self, queue: str, leases: Sequence[Lease]) -> None:
        self.of(queue).received += len(leases)
        for lease in leases:
            if lease.number == 1:
                self.time_in_queue.add((lease.leased_at - (lease.record.key << 1)) / SECOND_NS)

    def _told(self, totals: Totals, events: Iterable[Event]) -> None:
        totals.dead += sum(isinstance(event, Died | DiedInLine) for event in events)

    def confirmed(self, seconds: float, answers: int) -> None:
        """So many answers were confirmed together, after so long."""
        self.confirm_seconds.add(seconds)
        self.confirm_batch.add(answers)

    def handle(self, request: Request) -> Response:
        return Response(200, generate_latest(self._registry), _HEADERS)

    def collect(self) -> Iterable[Metric]:
        """What the Prometheus client asks of a collector."""
        yield from self._by_queue()
        yield self.time_in_queue.family(
            "pillarbox_time_in_queue_seconds", "From sending to the first receive"
        )
        yield self.confirm_seconds.family(
            "pillarbox_sync_seconds", "From writing an event to its confirmation on disk"
        )
        yield self.confirm_batch.family(
            "pillarbox_sync_batch_size", "How many answers one sync confirmed"
        )
        requests = CounterMetricFamily("pillarbox_requests", "SQS requests", labels=["action"])
        for action, count in self.requests.items():
            requests.add_metric([action], count)
        errors = CounterMetricFamily("pillarbox_errors", "Errors answered", labels=["code"])
        for code, count in self.errors.items():
            errors.add_metric([code], count)
        yield requests
        yield errors
        yield _gauge("pillarbox_parked_polls", "Receives that wait", self.parked)
        connections = len(self._broker.site.connections)
        yield _gauge("pillarbox_connections", "Open connections", connections)

    def _by_queue(self) -> Iterable[Metric]:
        depth = GaugeMetricFamily("pillarbox_messages", "By state", labels=["queue", "state"])
        oldest = GaugeMetricFamily(
            "pillarbox_oldest_message_seconds", "Age of the oldest in line", labels=["queue"]
        )
        names = ("sent", "received", "deleted", "dead", "expired", "unread")
        totals = {
            name: CounterMetricFamily(
                f"pillarbox_messages_{name}", f"Messages {name}", labels=["queue"]
            )
            for name in names
        }
        for queue in self._broker.catalogue:
            ready, scheduled, in_flight, _, age = queue.desk.counts()
            states = {"ready": ready, "scheduled": scheduled, "in_flight": in_flight}
            for state, count in states.items():
                depth.add_metric([queue.name, state], count)
            oldest.add_metric([queue.name], (age or 0) / SECOND_NS)
            known = self.of(queue.name)
            for name, family in totals.items():
                value = queue.expired if name == "expired" else getattr(known, name)
                family.add_metric([queue.name], value)
        yield depth
        yield oldest
        yield from totals.values()


def _gauge(name: str, text: str, value: float) -> Metric:
    family: Any = GaugeMetricFamily(name, text, value=value)
    return family  # type: ignore[no-any-return]
