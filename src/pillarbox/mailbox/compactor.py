"""Compacts a store on disk in the background, to keep it small and quick to open.

After a number of entries it takes a snapshot, which bounds the replay, and drops the oldest
segments of the log; messages still alive in mostly dead segments are first rewritten at the end
of the log. On a full disk it uses the reserved space, once enough messages are gone.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pillarbox.core import journal
from pillarbox.core.errors import MailboxError, MailboxFullError
from pillarbox.core.queue import NEVER, Record
from pillarbox.log import LogError, Retention
from pillarbox.log.disk import has_no_space, replace_file
from pillarbox.logger import logger
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.budget import Budget
from pillarbox.mailbox.capture import Capture, Pause, no_pause
from pillarbox.mailbox.durable_session import bytes_of, index_of, location
from pillarbox.mailbox.store_files import SNAPSHOT_FILE, snapshot_head
from pillarbox.mutex import Mutex, short_pause

if TYPE_CHECKING:
    from pillarbox.mailbox.durable_store import DurableStore

_ENTRIES_BETWEEN = 50_000  # about the most entries a recovery replays;
_PART_BETWEEN = 4  # in a large store, a quarter of its messages
_SLACK = 1.25  # the log may be this much larger than its live data, plus one segment
_BATCH = 256  # messages rewritten in one step
_LARGE = 16 << 10  # an entry this large reserves more space immediately
_CHECK_SECONDS = 1.0  # interval between checks of a full disk
_RECLAIM_SECONDS = 10.0  # how long a send waits for free space
_HELD_CHECK_SECONDS = 0.05  # interval between checks whether compaction may start
_PART_WORTH = 64  # a send waits if at least 1/64 of the messages are gone


class Compactor:
    """The background compaction of one store."""

    def __init__(self, store: DurableStore, history: Retention, snapshot_index: int) -> None:
        self._store = store
        self.history = history
        self.snapshot_index = snapshot_index
        self.budget = Budget(store)
        self.budget.reserve(0)
        # Count replayed entries too: this bounds the replay of a store that is killed repeatedly.
        self._counted_from = snapshot_index
        self._entries_max = _entries_max_for(self.budget.messages)
        self.check_index = 0  # call `check` when the log reaches this index
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._wake = threading.Event()
        self._pending = False  # a compaction is pending
        self._held_until = 0.0
        self._finished = threading.Condition()
        self._busy = Mutex()

    @property
    def _entries(self) -> int:
        """The number of entries written since the last compaction was requested."""
        return self._store.log.next_index - self._counted_from

    def expect(self, entries: Sequence[bytes]) -> None:
        """Reserve space, if due, before these messages are written."""
        largest = max(map(len, entries))
        grown = largest > self.budget.largest_bytes
        if grown:
            self.budget.largest_bytes = largest
        end_index = self._store.log.next_index + len(entries)
        if (grown and largest > _LARGE) or end_index >= self.check_index:
            self.check(len(entries))

    def is_full(self, *, refused: bool = False) -> None:
        """Handle a full disk: compact now if a send was refused and enough messages are gone."""
        worth = max(1, self.budget.messages // _PART_WORTH)
        if self._thread is None or (refused and self._entries >= worth):
            self.check(0)

    def reclaim(self) -> bool:
        """Wait for the compaction after a refused send; return whether there is space now."""
        if self._store.log.space.full:  # else space was freed in the meantime
            with self._finished:
                self._finished.wait_for(lambda: not self._pending, _RECLAIM_SECONDS)
        return not self._store.log.space.full

    def check(self, expected: int) -> None:
        """Reserve space to acknowledge all messages and `expected` new ones; compact if due."""
        self._store.note_time()
        full = self.budget.reserve(expected)
        index = self._store.log.next_index
        worth = not self._stopping and (full or self._entries >= self._entries_max)
        if worth:
            self._counted_from = index
        self.check_index = index + self.budget.step(full=full)
        if not full:
            self.check_index = min(self.check_index, self._counted_from + self._entries_max)
        if not worth:
            return
        self._pending = True
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="pillarbox-compactor", daemon=True
            )
            self._thread.start()

    @property
    def busy_here(self) -> bool:
        """Whether this thread is compacting."""
        return bool(self._busy._is_owned())

    def hold(self, seconds: float) -> None:
        """Start no compaction for `seconds`, while files are copied, unless the disk is full."""
        self._held_until = time.monotonic() + seconds

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        """Compact on request and, while the disk is full, whenever enough messages are gone."""
        store, goes_on = self._store, True
        while goes_on:
            if self._wake.is_set() and not self._stopping:
                self._wait_while_held()
                self._wake.clear()
                self._compact_quietly()
            with store.lock:
                goes_on = self._is_needed()
                self._pending = goes_on and self._wake.is_set()
                if not goes_on:
                    self._thread = None
            with self._finished:
                self._finished.notify_all()
            if goes_on:
                self._wake.wait(_CHECK_SECONDS)  # another program may free space

    def _wait_while_held(self) -> None:
        while not (self._stopping or self._store.log.space.full):
            left = self._held_until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _HELD_CHECK_SECONDS))

    def _is_needed(self) -> bool:
        """Return whether to continue: compaction was requested, or the disk is full."""
        try:
            self.budget.reserve(0)
            has_room = self._store.log.space.check()
        except OSError as error:  # the next write will raise it
            logger.error(
                "could not check the free disk space", store=self._store.path, error=str(error)
            )
            return False
        return not self._stopping and (self._wake.is_set() or not has_room)

    def _compact_quietly(self) -> None:
        try:
            self.compact(keep_spares=not self._store.log.space.full)
        except (MailboxError, LogError, OSError) as error:
            full = isinstance(error, MailboxFullError)  # retried when more messages are gone
            level = logger.warning if full else logger.error
            level("could not compact the store", store=self._store.path, error=str(error))

    def compact(
        self, progress: Callable[[int, int], None] | None = None, *, keep_spares: bool = False
    ) -> None:
        """Take a snapshot, then drop segments that neither live messages nor the history need.

        In the background (`keep_spares`), leave the interpreter to other threads most of the time,
        keep dropped segments as spares for new ones, and do not count preallocated space.
        """
        log = self._store.log
        with self._busy:
            pause = short_pause if keep_spares else no_pause
            live = self._snapshot(pause)
            self._drop(live.oldest)
            self._rewrite(live, log.size_bytes if keep_spares else log.disk_bytes, progress)
            if not keep_spares:
                log.space.spares.drop_all()

    def take_snapshot(self) -> None:
        with self._busy:
            self._snapshot(no_pause)

    def _snapshot(self, pause: Pause) -> Live:
        """Write the state to the snapshot file and return the live messages in it."""
        store = self._store
        with store.lock:
            if store.log.halted is not None:  # the state may be behind the log
                raise store.log.halted
            store.write_deferred()
            capture = store.capture = Capture(store, pause)
        try:
            capture.complete()
            store.log.make_durable()  # the snapshot must not be ahead of the log
            live = Live(capture)
            content = snapshot.encode(capture.state(live.oldest))
        finally:
            store.capture = None
        if not 0 < capture.index == self.snapshot_index:  # else the file is already current
            self._put(snapshot_head(content) + content)
        self.snapshot_index = capture.index
        self._entries_max = _entries_max_for(live.count)
        return live

    def _put(self, content: bytes) -> None:
        """Write the snapshot file; on a full disk, use the space reserved for it."""
        store = self._store
        try:
            replace_file(store.disk, store.path, SNAPSHOT_FILE, content)
        except OSError as error:
            if not has_no_space(error):
                raise
            if not store.log.space.release(len(content), self.budget.acknowledges):
                raise MailboxFullError(
                    f"no space left for a snapshot of {len(content)} bytes of {store.path}; free "
                    "some disk space, or acknowledge messages, which needs no snapshot"
                ) from error
            replace_file(store.disk, store.path, SNAPSHOT_FILE, content)

    def _rewrite(self, live: Live, taken: int, progress: Callable[[int, int], None] | None) -> None:
        """Rewrite the live messages of the oldest segments until the log is small enough."""
        log = self._store.log
        excess = taken - int(_SLACK * live.bytes) - log.space.segment_bytes
        ends = []
        for end, size in log.sealed_segments():
            if excess <= 0:
                break
            ends.append(end)
            excess -= size
        if not ends:
            return
        segments, rest = live.by_segment(ends)
        ends[-1] = max(ends[-1], rest)  # the segments that follow may hold no live message
        done = 0
        for end, moved in zip(ends, segments, strict=True):
            for at in range(0, len(moved), _BATCH):
                if self._stopping or not self._restate(moved[at : at + _BATCH]):
                    return
                if progress is not None:
                    progress(done + at, live.count)
            done += len(moved)
            self._drop(end)

    def _restate(self, records: list[Record]) -> bool:
        """Append these messages to the log again; return False if there is no space."""
        store = self._store
        bodies = [(record, store.body(record)) for record in records]
        readable = [(record, body) for record, body in bodies if body is not None]
        entries = [
            journal.entry_bytes(journal.RESTATED, 0, record.key, body=body)
            for record, body in readable
        ]
        if not entries:
            return True
        try:
            with store.lock:
                ticket = store.write(entries, lazy=False, urgent=True, leave=self.budget.needed)
        except MailboxFullError:
            return False
        ticket.wait()
        for i, (record, _) in enumerate(readable):
            record.body = location(ticket.first_index + i, len(entries[i]))
        return True

    def _drop(self, oldest: int) -> None:
        """Drop the segments before this index that neither the snapshot nor the history needs."""
        store = self._store
        wanted = store.log.first_to_keep(self.history, time.time_ns())
        store.log.truncate_before(min(oldest, self.snapshot_index, wanted))


class Live:
    """The live messages of a snapshot: their number, size, and the locations of their bodies."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.count = self.bytes = 0
        self.oldest = capture.index
        for some in capture.records():
            locations = [record.body for record in some]
            self.count += len(locations)
            self.bytes += sum(map(bytes_of, locations))
            self.oldest = min(self.oldest, index_of(min(locations, default=NEVER)))

    def by_segment(self, ends: Sequence[int]) -> tuple[list[list[Record]], int]:
        """Return the messages by segment, up to the last of `ends`, and the next index."""
        readable: list[list[Record]] = [[] for _ in ends]
        rest = self._capture.index
        for some in self._capture.records():
            for record in some:
                index = index_of(record.body)
                number = bisect_right(ends, index)
                if number < len(ends):
                    readable[number].append(record)
                else:
                    rest = min(rest, index)
        return readable, rest


def _entries_max_for(live: int) -> int:
    """Return after how many entries a store with this many live messages takes a snapshot."""
    return max(_ENTRIES_BETWEEN, live // _PART_BETWEEN)
