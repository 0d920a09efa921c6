"""Keeps a store on disk small and quick to open, in the background.

After so many entries it takes a snapshot, which bounds the replay. Then it drops the log's
oldest segments; messages that still live in mostly dead ones are written again at the log's
end first. On a full disk it works with the room that is held back, whenever many messages are gone.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import google_crc32c

from pillarbox.core import journal
from pillarbox.core.errors import MailboxError, MailboxFullError
from pillarbox.core.queue import NEVER, Record
from pillarbox.log import Disk, LogError, Retention
from pillarbox.log.disk import has_no_space, read_file, replace_file
from pillarbox.logger import logger
from pillarbox.mailbox import snapshot
from pillarbox.mailbox.budget import Budget
from pillarbox.mailbox.capture import Capture, Pause, no_pause
from pillarbox.mailbox.location import bytes_of, index_of, location
from pillarbox.mutex import Mutex, short_pause

if TYPE_CHECKING:
    from pillarbox.mailbox.durable_store import DurableStore

SNAPSHOT_FILE = "snapshot"
_MAGIC = b"PBXSNAP1"
_ENTRIES_BETWEEN = 50_000  # what a recovery replays at the most, give or take,
_PART_BETWEEN = 4  # or, of a store that holds many messages, one in so many of these
_SLACK = 1.25  # how much larger than what lives the log may be, beside one segment
_BATCH = 256  # messages that are written again in one step
_LARGE = 16 << 10  # bytes of an entry for which more room is held back at once
_LOOK_SECONDS = 1.0  # how often a full disk is looked at
_RECLAIM_SECONDS = 10.0  # how long a send waits for room
_HELD_LOOK_SECONDS = 0.05  # how often it looks whether it may begin
_PART_WORTH = 64  # a send waits if one message in so many was let go


class Compactor:
    """The housekeeping of one store."""

    def __init__(self, store: DurableStore, history: Retention, snapshot_index: int) -> None:
        self._store = store
        self.history = history
        self.snapshot_index = snapshot_index
        self.budget = Budget(store)
        self.budget.hold_back(0)
        # What was replayed counts: a store that is killed again and again is bounded, too.
        self._counted_from = snapshot_index
        self._enough = _enough_for(self.budget.messages)
        self.look_index = 0  # when the log has grown to this, `look` is due
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._wake = threading.Event()
        self._asked = False  # for a compaction that is not done
        self._held_until = 0.0
        self._passed = threading.Condition()
        self._busy = Mutex()

    @property
    def _entries(self) -> int:
        """How many entries were written since a compaction was last asked for."""
        return self._store.log.next_index - self._counted_from

    def expect(self, entries: Sequence[bytes]) -> None:
        """Messages are about to be written."""
        largest = max(map(len, entries))
        grown = largest > self.budget.largest_bytes
        if grown:
            self.budget.largest_bytes = largest
        end_index = self._store.log.next_index + len(entries)
        if (grown and largest > _LARGE) or end_index >= self.look_index:
            self.look(len(entries))

    def is_full(self, *, refused: bool = False) -> None:
        """The disk is full: see to it, at once if messages were let go of and one was refused."""
        worth = max(1, self.budget.messages // _PART_WORTH)
        if self._thread is None or (refused and self._entries >= worth):
            self.look(0)

    def reclaim(self) -> bool:
        """After a refusal: wait for what is being reclaimed; whether there is room then."""
        if self._store.log.space.full:  # else it has been reclaimed since
            with self._passed:
                self._passed.wait_for(lambda: not self._asked, _RECLAIM_SECONDS)
        return not self._store.log.space.full

    def look(self, expected: int) -> None:
        """See that there is room to let go of every message, those expected included."""
        self._store.note_time()
        full = self.budget.hold_back(expected)
        index = self._store.log.next_index
        worth = not self._stopping and (full or self._entries >= self._enough)
        if worth:
            self._counted_from = index
        self.look_index = index + self.budget.step(full=full)
        if not full:
            self.look_index = min(self.look_index, self._counted_from + self._enough)
        if not worth:
            return
        self._asked = True
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
        """Begin no compaction for so long: the files are being copied. A full disk can't wait."""
        self._held_until = time.monotonic() + seconds

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        """Compact; while the disk is full, again when many messages are gone."""
        store, goes_on = self._store, True
        while goes_on:
            if self._wake.is_set() and not self._stopping:
                self._wait_while_held()
                self._wake.clear()
                self._compact_quietly()
            with store.lock:
                goes_on = self._is_needed()
                self._asked = goes_on and self._wake.is_set()
                if not goes_on:
                    self._thread = None
            with self._passed:
                self._passed.notify_all()
            if goes_on:
                self._wake.wait(_LOOK_SECONDS)  # what another program takes, it may give back

    def _wait_while_held(self) -> None:
        while not (self._stopping or self._store.log.space.full):
            left = self._held_until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _HELD_LOOK_SECONDS))

    def _is_needed(self) -> bool:
        """Whether more is to be done: it was asked for, or the disk is full."""
        try:
            self.budget.hold_back(0)
            has_room = self._store.log.space.check()
        except OSError as error:  # whoever writes next meets it, too
            logger.error("the disk could not be checked", store=self._store.path, error=str(error))
            return False
        return not self._stopping and (self._wake.is_set() or not has_room)

    def _compact_quietly(self) -> None:
        try:
            self.compact(keep_spares=not self._store.log.space.full)
        except (MailboxError, LogError, OSError) as error:
            full = isinstance(error, MailboxFullError)  # tried again when more are gone
            level = logger.warning if full else logger.error
            level("the store could not be compacted", store=self._store.path, error=str(error))

    def compact(
        self, progress: Callable[[int, int], None] | None = None, *, keep_spares: bool = False
    ) -> None:
        """Take a snapshot, and drop whatever is neither alive nor wanted as history.

        In the background (`keep_spares`) it leaves the interpreter to others most of the time.
        Segments that are dropped are kept as spares for those to come, and the room that is
        reserved ahead does not count.
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
        """Write the state to its file; what is in it."""
        store = self._store
        with store.lock:
            if store.log.halted is not None:  # then the state may know less than the log
                raise store.log.halted
            store.write_deferred()
            capture = store.capture = Capture(store, pause)
        try:
            capture.complete()
            store.log.make_durable()  # the snapshot must not know more than the log
            live = Live(capture)
            content = snapshot.encode(capture.state(live.oldest))
        finally:
            store.capture = None
        head = _MAGIC + google_crc32c.value(content).to_bytes(4, "little")
        if not 0 < capture.index == self.snapshot_index:  # else it would be the one that is there
            self._put(head + content)
        self.snapshot_index = capture.index
        self._enough = _enough_for(live.count)
        return live

    def _put(self, content: bytes) -> None:
        """Write the snapshot's file, on a full disk with room that is held back for it."""
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
        """Write what lives in the oldest segments again, until the log is small enough."""
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
        ends[-1] = max(ends[-1], rest)  # what follows may be dead as a whole
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
        """Write these again at the end of the log; False if there is no room for them."""
        store = self._store
        bodies = [(record, store.body(record)) for record in records]
        found = [(record, body) for record, body in bodies if body is not None]
        entries = [
            journal.entry_bytes(journal.RESTATED, 0, record.key, body=body)
            for record, body in found
        ]
        if not entries:
            return True
        try:
            with store.lock:
                ticket = store.write(entries, lazy=False, urgent=True, leave=self.budget.needed)
        except MailboxFullError:
            return False
        ticket.wait()
        for i, (record, _) in enumerate(found):
            record.body = location(ticket.first_index + i, len(entries[i]))
        return True

    def _drop(self, oldest: int) -> None:
        """Drop the segments before this index, unless the snapshot or history needs them."""
        store = self._store
        wanted = store.log.first_to_keep(self.history, time.time_ns())
        store.log.truncate_before(min(oldest, self.snapshot_index, wanted))


class Live:
    """What a snapshot has: how many messages, how much they take, and where their bodies lie."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.count = self.bytes = 0
        self.oldest = capture.index
        for some in capture.records():
            places = [record.body for record in some]
            self.count += len(places)
            self.bytes += sum(map(bytes_of, places))
            self.oldest = min(self.oldest, index_of(min(places, default=NEVER)))

    def by_segment(self, ends: Sequence[int]) -> tuple[list[list[Record]], int]:
        """The messages in each of the segments that end at these indices; where the rest begins."""
        found: list[list[Record]] = [[] for _ in ends]
        rest = self._capture.index
        for some in self._capture.records():
            for record in some:
                index = index_of(record.body)
                number = bisect_right(ends, index)
                if number < len(ends):
                    found[number].append(record)
                else:
                    rest = min(rest, index)
        return found, rest


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
