"""How much room a store holds back, so that a full disk can always be emptied.

Whoever sends a message uses the disk, and whoever acknowledges one has to write, too. So room
for every acknowledgement is on disk before a message is accepted; also room for a snapshot,
without which nothing can be dropped, and for moving the few that still live in old segments.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from pillarbox.core import journal
from pillarbox.log.reserve import FILE_BYTES_MIN
from pillarbox.log.segment_writer import cost_of
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.mailbox.durable_store import DurableStore
    from pillarbox.mailbox.queue_steps import QueueSteps

_PARTS = 20  # one part of so many is lost to the headers and footers of segments
_ACKNOWLEDGE_BYTES = cost_of((bytes(journal.HEAD.size),)) * (_PARTS + 1) // _PARTS
_DIE_BYTES = _ACKNOWLEDGE_BYTES + 64  # with its reason
_SNAPSHOT_BYTES = 24  # of a message that has no attributes
_BASE_BYTES = FILE_BYTES_MIN  # the rest of a snapshot: a file of the reserve for itself
_STEP = 512  # so many entries at least are written between two looks


class Budget:
    """What must be held back for the messages that a store has now."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self.largest_bytes = 0  # of the entries with a body
        self.messages = 0
        self._counted: dict[QueueSteps, tuple[int, int]] = {}  # messages, and those that may die
        store.changed.update(store.sessions.values())
        #: What must be left by a snapshot, by messages that are moved, and by all the rest.
        self.acknowledges = self.needed = self.comfortable = 0

    def hold_back(self, expected: int) -> bool:
        """Count, and hold back what is needed; whether the disk is full. Needs the lock."""
        log = self._store.log
        messages, deaths = self._count()
        messages += expected
        segment_bytes = min(log.space.segment_bytes, log.size_bytes)
        self.messages = messages
        self.acknowledges = messages * _ACKNOWLEDGE_BYTES + deaths * _DIE_BYTES
        if messages:  # a snapshot leaves room for the last one, of an empty store
            self.acknowledges += _BASE_BYTES
        self.needed = self.acknowledges + messages * _SNAPSHOT_BYTES + _BASE_BYTES
        self.comfortable = self.needed + 2 * self.largest_bytes + segment_bytes // 4
        ahead = 2 * self.step(full=False) * (_ACKNOWLEDGE_BYTES + _SNAPSHOT_BYTES)
        try:
            log.space.reserve(self.comfortable + ahead)
        except OSError as error:  # whoever writes next meets it, too
            logger.error("no room could be held back", store=self._store.path, error=str(error))
        return log.space.full

    def _count(self) -> tuple[int, int]:
        """How many messages there are, and how many of them may die.

        Only queues that changed are counted: there may be very many that did not.
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
        """After how many more entries to look again."""
        if full:  # as soon as many messages are gone, and when the last one is
            return max(1, self.messages // 8)
        return max(_STEP, self.messages // 16, len(self._store.sessions))
