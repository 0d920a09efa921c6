"""Changes the queues of a broker from the dashboard: create, change, pause, delete.

The broker's queues belong to its event loop, so everything runs there. A change is on disk, or in
the shared store, when the method returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from pillarbox.broker import attributes
from pillarbox.broker.errors import no_such_queue
from pillarbox.broker.queue import BrokerQueue
from pillarbox.broker.queue_names import FIFO_SUFFIX, plain_name
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.limits import queue_name
from pillarbox.core.queue import NEVER
from pillarbox.mailbox.shared import StaleQueueError

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

R = TypeVar("R")


class QueueSettings(NamedTuple):
    """The fields of the form for a queue's settings, as text."""

    max_deliveries: str  # 0: never dead-letter
    dead_letters: str
    visibility_timeout: str
    delay: str
    retention: str  # empty: unlimited

    @classmethod
    def of(cls, queue: BrokerQueue) -> QueueSettings:
        current = queue.attributes()
        dead, most = queue.dead_letters or ("", 0)
        return cls(
            str(most),
            dead,
            current["VisibilityTimeout"],
            current["DelaySeconds"],
            "" if queue.retention_ns == NEVER else current["MessageRetentionPeriod"],
        )


class QueueAdmin:
    """Changes the queues of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._queues = broker, broker.queues

    def create(self, name: str) -> None:
        """Create a queue with the broker's own dead-letter policy."""
        self._run(self._create(queue_name(name)))

    async def _create(self, name: str) -> None:
        if await self._queues.find(name) is not None:
            wanted = "the name of a queue that does not exist yet"
            raise InvalidParameterError("name", name, wanted)
        await self._queues.open(name)

    def pause(self, name: str, *, paused: bool) -> None:
        self._run(self._queues.pause(name, paused=paused))

    def delete(self, name: str) -> None:
        async def drop() -> None:
            await self._queues.drop(await self._queue(name))

        self._run(drop())

    def settings(self, name: str) -> QueueSettings:
        return QueueSettings.of(self._run(self._queue(name)))

    def tags(self, name: str) -> dict[str, str]:
        return self._run(self._queue(name)).tags

    def change(self, name: str, wanted: QueueSettings) -> None:
        """Change the settings that differ. Values are checked as by SQS."""
        self._run(self._change(name, wanted))

    async def _change(self, name: str, wanted: QueueSettings) -> None:
        while True:
            queue = await self._queue(name)
            changes, target = self._changes(queue, wanted)
            kept = attributes.merged(queue.given, attributes.checked(changes, fifo=queue.fifo))
            if target and target.endswith(FIFO_SUFFIX) == queue.fifo:  # else it is refused
                await self._queues.ensure(target)
            ends = "RedrivePolicy" in changes and not target
            with suppress(StaleQueueError):  # another broker changed it: read it again
                await self._queues.change(queue, take_over=ends, attributes=kept)
                return

    def _changes(self, queue: BrokerQueue, wanted: QueueSettings) -> tuple[dict[str, str], str]:
        """Return the attributes to change, and the new dead-letter queue, if any."""
        now, target = QueueSettings.of(queue), ""
        changes: dict[str, str] = {}
        for attribute, old, new in (
            ("VisibilityTimeout", now.visibility_timeout, wanted.visibility_timeout),
            ("DelaySeconds", now.delay, wanted.delay),
            ("MessageRetentionPeriod", now.retention, wanted.retention),
        ):
            if new not in ("", old):
                changes[attribute] = new
        if wanted[:2] != now[:2]:
            policy = {}
            if wanted.max_deliveries not in ("", "0"):
                names = self._broker.names
                target = wanted.dead_letters or names.dead_letters_of(queue.name) or ""
                queue_name(plain_name(target))  # raises if it is not a valid name
                arn = names.arn(target)
                policy = {"deadLetterTargetArn": arn, "maxReceiveCount": wanted.max_deliveries}
            changes["RedrivePolicy"] = msgspec.json.encode(policy).decode() if policy else ""
        return changes, target

    async def _queue(self, name: str) -> BrokerQueue:
        queue = await self._queues.find(name)
        if queue is None:
            raise no_such_queue()
        return queue

    def _run(self, change: Coroutine[Any, Any, R]) -> R:
        async def run() -> R:
            answer = await change
            await self._broker.saved()
            return answer

        return asyncio.run_coroutine_threadsafe(run(), self._broker.loop).result()
