"""A queue, its dead-letter queue and a clock to tell small stories with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pillarbox.core import apply
from pillarbox.core import events as e
from pillarbox.core.queue import Extra, Lease, Queue, Record, Settings, in_order, waiting
from tests.core import commands as c

START = 1_000_000_000_000
S = 1_000_000_000


class Scene:
    """Messages are named by their bodies; every call settles, decides and applies."""

    def __init__(self, *, dead_letters: bool = False, **settings: Any) -> None:
        self.now = START
        self.queue = Queue("jobs", Settings(**settings))
        self.dead = Queue("jobs_dlq")
        if dead_letters:
            self.queue.send_dead_letters_to(self.dead)
        self._key = START >> 1
        self.records: dict[str, Record] = {}

    def record(
        self,
        name: str,
        *,
        priority: int = 0,
        group: str | None = None,
        deduplication: str | None = None,
    ) -> Record:
        self._key = max(self.now >> 1, self._key + 1)
        extra = Extra(group, deduplication) if group or deduplication else None
        self.records[name] = Record(self._key, name, priority, 0, None, extra)
        return self.records[name]

    def do(self, command: c.Command, *, to: Queue | None = None) -> list[Any]:
        queue = to or self.queue
        apply.settle(queue, self.now)
        events = command(queue, self.now)
        for event in events:
            apply.apply(queue, event)
        return events

    def send(self, *names: str, delay: int = 0, **options: Any) -> list[str]:
        """The bodies of the messages that were accepted."""
        records = [self.record(name, **options) for name in names]
        events = self.do(c.send(records, delay))
        return [record.body for event in events for record in event.records]

    def receive(self, count: int = 1, timeout: int = 30 * S, *, dead: bool = False) -> list[Lease]:
        events = self.do(c.receive(count, timeout), to=self.dead if dead else None)
        return [lease for x in events if isinstance(x, e.Leased) for lease in x.leases]

    def take(self, count: int = 1, timeout: int = 30 * S) -> list[str]:
        return bodies(self.receive(count, timeout))

    def keys(self, *names: str) -> frozenset[int]:
        return frozenset(self.records[name].key for name in names)

    @property
    def line(self) -> list[str]:
        return [record.body for record in in_order(self.queue)]

    @property
    def waiting(self) -> list[str]:
        return [record.body for record in waiting(self.queue)]

    @property
    def graves(self) -> list[str]:
        return [record.body for record in waiting(self.dead)]

    @property
    def counts(self) -> tuple[int, int, int]:
        queue = self.queue
        assert queue.size == queue.ready + queue.scheduled + queue.in_flight
        return queue.ready, queue.scheduled, queue.in_flight


def bodies(leases: Iterable[Lease]) -> list[str]:
    return [lease.record.body for lease in leases]
