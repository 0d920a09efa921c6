"""Queues that clients have for their answers: the end of those whose clients are gone.

A client deletes its own when it closes. One that was killed leaves it behind. Such a queue is
deleted when nobody has polled it for a day; a client that lives polls, or declares it anew.
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
    """When each was last polled. Those that were made through SQS's API are for SQS's users."""

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
        """A client says that it lives."""
        if is_reply_queue(name):
            self._polled_at[name] = self._store.clock.now()

    def polled(self, name: str) -> None:
        """Whoever has this queue lives."""
        if name in self._polled_at:
            self._polled_at[name] = self._store.clock.now()

    async def sweep(self) -> None:
        """Now and then: delete those that were left behind."""
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
