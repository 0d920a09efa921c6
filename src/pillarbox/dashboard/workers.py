"""The clients that receive from a broker's queues: their activity, rates and failures."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from pillarbox.broker.consumers import Consumer
from pillarbox.dashboard.mailboxes import Mailboxes

LIVE_SECONDS = 60.0  # a client that polled this recently is alive
ACTIVE_SECONDS = 5.0
ROWS_MAX = 50
_RATE_SECONDS = 10.0  # rates are taken over one to two of these


class WorkerRow(NamedTuple):
    """A live client of one queue."""

    consumer: Consumer
    doing: str
    done_per_second: float | None
    failed_per_second: float | None

    @property
    def name(self) -> str:
        return name_of(self.consumer.client)


class _Mark(NamedTuple):
    """The counters of a consumer at some time."""

    at: float
    done: int
    failed: int


class Workers:
    """Takes samples of the consumers, for their rates."""

    def __init__(self, boxes: Mailboxes) -> None:
        self._boxes = boxes
        self._marks: dict[Consumer, list[_Mark]] = {}  # one or two, oldest first

    @property
    def known(self) -> bool:
        """Whether the backend tracks its consumers."""
        return self._boxes.consumers() is not None

    def take(self, now: float | None = None) -> None:
        now = monotonic() if now is None else now
        marks: dict[Consumer, list[_Mark]] = {}
        for each in self._boxes.consumers() or ():
            before = self._marks.get(each, [])
            if not before or now - before[-1].at >= _RATE_SECONDS:
                before = [*before[-1:], _Mark(now, each.done, each.failed)]
            marks[each] = before
        self._marks = marks

    def rows(self, queue: str | None = None, now: float | None = None) -> list[WorkerRow]:
        """Return the live consumers of one queue or of all, failing ones first."""
        now = monotonic() if now is None else now
        wanted = [c for c in self._boxes.consumers() or () if queue in (None, c.queue)]
        held = self._boxes.held({consumer.queue for consumer in wanted})
        live = [c for c in wanted if c.waiting or held[c] or now - c.seen_at < LIVE_SECONDS]
        rows = [self._row(consumer, held[consumer], now) for consumer in live]
        rows.sort(key=lambda row: (-(row.failed_per_second or 0), row.consumer.queue, row.name))
        return rows[:ROWS_MAX]

    def _row(self, consumer: Consumer, held: int, now: float) -> WorkerRow:
        done = failed = None
        marks = self._marks.get(consumer)
        if marks and now - marks[0].at >= 1:
            seconds = now - marks[0].at
            done = (consumer.done - marks[0].done) / seconds
            failed = (consumer.failed - marks[0].failed) / seconds
        return WorkerRow(consumer, _doing(consumer, held, now), done, failed)


def name_of(client: str) -> str:
    """Return host and process of Pillarbox clients; of others the product (Boto3/1.40)."""
    if client.startswith("pillarbox "):
        return client.removeprefix("pillarbox ")
    return client.partition(" ")[0] or "unnamed client"


def _doing(consumer: Consumer, held: int, now: float) -> str:
    doing = []
    if held:
        doing.append(f"holding {held:,} message{'' if held == 1 else 's'}")
    if consumer.waiting:
        doing.append("waiting for messages")
    quiet = now - consumer.seen_at
    return ", ".join(doing) or ("active" if quiet < ACTIVE_SECONDS else f"idle for {quiet:.0f} s")
