"""Changes of a broker's queues from the dashboard: create, change, pause, delete.

The broker's catalogue belongs to its event loop, so everything runs there, and a change is on
disk when a method returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pillarbox.broker import attributes
from pillarbox.broker.local_queue import LocalQueue
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.limits import queue_name
from pillarbox.core.queue import NEVER

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker


class QueueSettings(NamedTuple):
    """What the form for a queue's settings shows, as text."""

    max_deliveries: str  # 0: never dead-letter
    dead_letters: str
    visibility_timeout: str
    delay: str
    retention: str  # empty: for ever


class QueueAdmin:
    """Changes the queues of a broker in this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def create(self, name: str) -> None:
        """A queue with the broker's own dead-letter policy."""
        if queue_name(name) in self._broker.store.sessions:
            raise InvalidParameterError("name", name, "the name of a queue that does not exist yet")
        self._run(lambda: self._broker.open_queue(name))

    def pause(self, name: str, *, paused: bool) -> None:
        store = self._broker.store
        self._run(lambda: store.pause(store.sessions[name], paused=paused))

    def delete(self, name: str) -> None:
        catalogue = self._broker.catalogue
        self._run(lambda: catalogue.drop(catalogue.get(name)))

    def settings(self, name: str) -> QueueSettings:
        queue = LocalQueue(self._broker.store.sessions[name])
        known, dead = queue.attributes(), queue.session.dead
        return QueueSettings(
            str(queue.session.queue.settings.max_deliveries if dead is not None else 0),
            dead.queue.name if dead is not None else "",
            known["VisibilityTimeout"],
            known["DelaySeconds"],
            "" if queue.retention_ns == NEVER else known["MessageRetentionPeriod"],
        )

    def change(self, name: str, wanted: QueueSettings) -> None:
        """Only what differs is changed; the values are those that SQS accepts."""
        self._run(lambda: self._change(self._broker.catalogue.get(name), wanted))

    def _change(self, queue: LocalQueue, wanted: QueueSettings) -> None:
        now = self.settings(queue.name)
        changes: dict[str, str] = {}
        for attribute, old, new in (
            ("VisibilityTimeout", now.visibility_timeout, wanted.visibility_timeout),
            ("DelaySeconds", now.delay, wanted.delay),
            ("MessageRetentionPeriod", now.retention, wanted.retention),
        ):
            if new not in ("", old):
                changes[attribute] = new
        broker, target = self._broker, ""
        if wanted[:2] != now[:2]:
            policy = {}
            if wanted.max_deliveries not in ("", "0"):
                target = wanted.dead_letters or broker.catalogue.dead_letters_of(queue.name) or ""
                if target not in broker.store.sessions:
                    queue_name(target)  # raises unless it can be one
                arn = broker.catalogue.arn(target)
                policy = {"deadLetterTargetArn": arn, "maxReceiveCount": wanted.max_deliveries}
            changes["RedrivePolicy"] = msgspec.json.encode(policy).decode() if policy else ""
        kept = attributes.merged(queue.given, attributes.checked(changes, fifo=queue.fifo))
        if target:
            broker.store.session(target)
        broker.catalogue.change(queue, broker.now_seconds(), attributes=kept)
        if "RedrivePolicy" in changes and not target:
            broker.store.keep_dead_letters(queue.session)

    def _run(self, change: Callable[[], Any]) -> None:
        async def run() -> None:
            change()
            await self._broker.saved()

        asyncio.run_coroutine_threadsafe(run(), self._broker.loop).result()
