"""Keeps a store on disk small and quick to open, in the background.

After so many entries it takes a snapshot, which bounds the replay. Then it drops the log's
oldest segments; messages that still live in mostly dead ones are written again at the log's
end first. Nobody waits for it but for the moment in which it copies the state's references.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import google_crc32c

from pillarbox.core import journal
from pillarbox.core.queue import Record
from pillarbox.log import Disk, LogError, Retention
from pillarbox.log.disk import read_file, replace_file
from pillarbox.logger import logger
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.desk import Desk
from pillarbox.mailbox.location import bytes_of, index_of, location
from pillarbox.mutex import Mutex

if TYPE_CHECKING:
    from pillarbox.mailbox.ledger import DurableStore

SNAPSHOT_FILE = "snapshot"
_MAGIC = b"PBXSNAP1"
_ENTRIES_BETWEEN = 50_000  # what a recovery replays at the most, give or take,
_PART_BETWEEN = 4  # or, of a store that holds many messages, one in so many of these
_SLACK = 1.25  # how much larger than what lives the log may be, beside one segment
_BATCH = 256  # messages that are written again in one step


class Compactor:
    """The housekeeping of one store."""

    def __init__(self, store: DurableStore, history: Retention, snapshot_index: int) -> None:
        self._store = store
        self.history = history
        self.snapshot_index = snapshot_index
        # What was replayed counts: a store that is killed again and again is bounded, too.
        self._entries = store.log.next_index - snapshot_index
        self._enough = _enough_for(sum(desk.queue.size for desk in store.desks.values()))
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._busy = Mutex()

    def grown(self, entries: int) -> None:
        """The log has grown; see to it when it has by much. The caller has the store's lock."""
        self._entries += entries
        if self._entries < self._enough or self._stopping or self._thread is not None:
            return
        self._entries = 0
        self._thread = threading.Thread(target=self._run, name="pillarbox-compactor", daemon=True)
        self._thread.start()

    @property
    def busy_here(self) -> bool:
        """Whether this thread is compacting."""
        return bool(self._busy._is_owned())

    def stop(self) -> None:
        self._stopping = True
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        try:
            self.compact(keep_spares=True)
        except (LogError, OSError):
            logger.exception("the store could not be compacted", store=self._store.path)
        finally:
            self._thread = None

    def compact(
        self, progress: Callable[[int, int], None] | None = None, *, keep_spares: bool = False
    ) -> None:
        """Take a snapshot, and drop whatever is neither alive nor wanted as history.

        Under load, segments that are dropped are kept as spares for those to come, and the room
        that is reserved ahead does not count.
        """
        log = self._store.log
        with self._busy:
            live = self._snapshot()
            self._rewrite(live, log.size_bytes if keep_spares else log.disk_bytes, progress)
            self._drop(live)
            if not keep_spares:
                log.drop_spares()

    def take_snapshot(self) -> None:
        with self._busy:
            self._snapshot()

    def _snapshot(self) -> list[Record]:
        """Write the state to its file; the messages that are in it."""
        store = self._store
        with store.lock:
            if store.log.halted is not None:  # then the state may know less than the log
                raise store.log.halted
            store_time = store.clock.now()
            index = store.log.next_index
            queues = [_captured(desk, store.number_of(desk)) for desk in store.desks.values()]
            key, prefix, secret = store.last_key, store.prefix, store._secret
            number = store.last_number
        store.log.flush()  # the snapshot must not know more than the log
        state = snapshot.StoreState(index, prefix, secret, key, store_time, queues, number)
        content = snapshot.encode(state)
        head = _MAGIC + google_crc32c.value(content).to_bytes(4, "little")
        replace_file(store.disk, store.path, SNAPSHOT_FILE, head + content)
        self.snapshot_index = index
        live = [record for queue in queues for record in snapshot.records_of(queue)]
        self._enough = _enough_for(len(live))
        return live

    def _rewrite(
        self, live: list[Record], taken: int, progress: Callable[[int, int], None] | None
    ) -> None:
        """Write what lives in the oldest segments again, until the log is small enough."""
        store = self._store
        budget = taken - (
            int(_SLACK * sum(bytes_of(record.body) for record in live)) + store.segment_bytes
        )
        live.sort(key=lambda record: index_of(record.body))
        done = 0
        for end, size in store.log.sealed_segments():
            if budget <= 0 or self._stopping:
                break
            moved = [r for r in live[done:] if index_of(r.body) < end]
            for at in range(0, len(moved), _BATCH):
                self._restate(moved[at : at + _BATCH])
                if progress is not None:
                    progress(done + at, len(live))
            done += len(moved)
            budget -= size

    def _restate(self, records: list[Record]) -> None:
        store = self._store
        bodies = [(record, store.body(record)) for record in records]
        found = [(record, body) for record, body in bodies if body is not None]
        entries = [
            journal.entry_bytes(journal.RESTATED, 0, record.key, body=body)
            for record, body in found
        ]
        if not entries:
            return
        with store.lock:
            ticket = store.write(entries, lazy=False, urgent=False)
        ticket.wait()
        for i, (record, _) in enumerate(found):
            record.body = location(ticket.first_index + i, len(entries[i]))

    def _drop(self, live: list[Record]) -> None:
        store = self._store
        oldest = min((index_of(record.body) for record in live), default=self.snapshot_index)
        wanted = store.log.first_to_keep(self.history, time.time_ns())
        store.log.truncate_before(min(oldest, self.snapshot_index, wanted))


def _enough_for(live: int) -> int:
    """After how many entries a store with so many messages takes a snapshot."""
    return max(_ENTRIES_BETWEEN, live // _PART_BETWEEN)


def read_snapshot(disk: Disk, path: str) -> snapshot.StoreState | None:
    """The state that was last written; None if there is none that can be trusted."""
    try:
        content = read_file(disk, f"{path}/{SNAPSHOT_FILE}")
    except FileNotFoundError:
        return None
    head = len(_MAGIC) + 4
    state = content[head:]
    if content[:head] != _MAGIC + google_crc32c.value(state).to_bytes(4, "little"):
        logger.error("the snapshot is damaged; the whole log is replayed instead", store=path)
        return None
    return snapshot.decode(state)


def _captured(desk: Desk, number: int) -> snapshot.QueueState:
    state = snapshot.capture(desk.queue, number)
    state.notes = desk.notes
    return state
