"""The disk space that a store reserves so that a full disk can always be emptied.

Acknowledging a message also writes to the disk. So before a message is accepted, the store
reserves space for its acknowledgement; also for a snapshot, without which no segment can be
dropped, and for rewriting the few live messages of old segments.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from pillarbox.core import journal
from pillarbox.log.segment_writer import cost_of
from pillarbox.log.spare_files import FILE_BYTES_MIN
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.mailbox.durable_store import DurableStore
    from pillarbox.mailbox.queue_steps import QueueSteps

_PARTS = 20  # one part in 20 goes to segment headers and footers
_ACKNOWLEDGE_BYTES = cost_of((bytes(journal.HEAD.size),)) * (_PARTS + 1) // _PARTS
_DIE_BYTES = _ACKNOWLEDGE_BYTES + 64  # includes the reason
_SNAPSHOT_BYTES = 24  # per message without attributes
_BASE_BYTES = FILE_BYTES_MIN  # the rest of a snapshot: one reserve file of its own
_STEP = 512  # write at least this many entries between two checks


class Budget:
    """The space to reserve for the messages that a store holds now."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self.largest_bytes = 0  # largest entry with a body
        self.messages = 0
        self._counted: dict[
            QueueSteps, tuple[int, int]
        ] = {}  # messages, and those that may be dead-lettered
        store.changed.update(store.sessions.values())
        #: Bytes that must remain free after a snapshot, after a rewrite, and after any other write.
        self.acknowledges = self.needed = self.comfortable = 0

    def reserve(self, expected: int) -> bool:
        """Count the messages and reserve space for them; return whether the disk is full.

        Requires the lock.
        """
        log = self._store.log
        messages, deaths = self._count()
        messages += expected
        segment_bytes = min(log.space.segment_bytes, log.size_bytes)
        self.messages = messages
        self.acknowledges = messages * _ACKNOWLEDGE_BYTES + deaths * _DIE_BYTES
        if messages:  # each snapshot leaves space for the final one, of an empty store
            self.acknowledges += _BASE_BYTES
        self.needed = self.acknowledges + messages * _SNAPSHOT_BYTES + _BASE_BYTES
        self.comfortable = self.needed + 2 * self.largest_bytes + segment_bytes // 4
        ahead = 2 * self.step(full=False) * (_ACKNOWLEDGE_BYTES + _SNAPSHOT_BYTES)
        try:
            log.space.reserve(self.comfortable + ahead)
        except OSError as error:  # the next write will raise it
            logger.error("could not reserve disk space", store=self._store.path, error=str(error))
        return log.space.full

    def _count(self) -> tuple[int, int]:
        """Return the number of messages, and of those that may be dead-lettered.

        Only counts the queues that changed: a store may have very many idle ones.
        """
        changed, counted = self._store.changed, self._counted
        for session in list(changed):
            size = session.queue.size
            counted[session] = (size, size if session.dead is not None else 0)
            if not size:
                del counted[session]
            changed.discard(session)  # last: a signal handler may raise in between
        return sum(map(itemgetter(0), counted.values())), sum(map(itemgetter(1), counted.values()))

    def step(self, *, full: bool) -> int:
        """Return after how many more entries to check again."""
        if full:  # when many messages are gone, or the last one
            return max(1, self.messages // 8)
        return max(_STEP, self.messages // 16, len(self._store.sessions))
