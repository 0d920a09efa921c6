"""Deletes the reply queues of clients that are gone.

A client deletes its reply queue when it closes; one that was killed leaves it behind. A reply
queue that nobody has polled for a day is deleted. A live client polls it, or declares it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pillarbox.core.limits import SECOND_NS
from pillarbox.logger import logger
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, is_reply_queue

if TYPE_CHECKING:
    from pillarbox.broker.local_queues import LocalQueues
    from pillarbox.mailbox.store import Store

_IDLE_NS_MAX = IDLE_SECONDS_MAX * SECOND_NS
_SWEEP_NS = _IDLE_NS_MAX // 24


class ReplyQueues:
    """When each reply queue was last polled. Queues created through the SQS API don't count."""

    def __init__(self, store: Store, queues: LocalQueues) -> None:
        self._store, self._queues = store, queues
        now = store.clock.now()
        self._sweep_at = now + _SWEEP_NS
        self._polled_at = {
            name: now
            for name, session in store.sessions.items()
            if is_reply_queue(name) and not session.notes
        }

    def declared(self, name: str) -> None:
        """Record that a client declared this queue."""
        if is_reply_queue(name):
            self._polled_at[name] = self._store.clock.now()

    def polled(self, name: str) -> None:
        """Record that a client polled this queue."""
        if name in self._polled_at:
            self._polled_at[name] = self._store.clock.now()

    async def sweep(self) -> None:
        """Once an hour, delete the queues that were left behind."""
        now = self._store.clock.now()
        if now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_NS
        for name, polled_at in list(self._polled_at.items()):
            queue = self._queues.find_now(name)
            if queue is not None and (queue.session.waiters or now < polled_at + _IDLE_NS_MAX):
                continue
            del self._polled_at[name]
            if queue is not None:
                await self._queues.drop(queue)
                logger.info("a queue for answers was left behind and is deleted", queue=name)
