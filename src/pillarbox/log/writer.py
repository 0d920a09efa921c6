"""The one writer of a log: assigns indices, and commits records in groups.

Space is allocated before a record gets its index, so a full disk is an error of `submit` that
changes nothing. After that a group is confirmed, or the writer is poisoned: a failed write or
sync is never retried, because the page cache no longer shows what is on disk.
At level fsync, at most one frame is written but not yet synced at any time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident

from pillarbox.log.commits import COMMIT_BYTES_MAX, Commit, encode_commit
from pillarbox.log.directory import LogDirectory
from pillarbox.log.errors import (
    LogClosedError,
    LogFullError,
    LogPoisonedError,
    RecordTooLargeError,
)
from pillarbox.log.frame import (
    COMMIT,
    COMMITTING,
    DATA,
    FRAME_BYTES_MAX,
    EncodedRecords,
    encode_all,
)
from pillarbox.log.group import Group
from pillarbox.log.group_commit import (
    BUFFER_BYTES,
    CONFIRMED,
    GROUP_BYTES_MAX,
    GroupCommit,
    Ticket,
)
from pillarbox.log.open_segments import OpenSegments
from pillarbox.log.segment_writer import (
    FRAME_OVERHEAD_BYTES,
    JOIN_BYTES_MAX,
    SegmentWriter,
    cost_of,
)
from pillarbox.log.segments import Catalog
from pillarbox.mutex import not_reentrant, reentrant_call

FSYNC, OS, MEMORY = "fsync", "os", "memory"
_SINGLE_BYTES = FRAME_OVERHEAD_BYTES + 4


class Writer(OpenSegments):
    """Appends to one log directory. The lock guards indices and space; one leader writes."""

    def __init__(
        self,
        directory: LogDirectory,
        catalog: Catalog,
        log_id: bytes,
        segment_bytes: int,
        *,
        durability: str,
        prepare_ahead: bool,
        confirmed: Callable[[int], None],
        rolled: Callable[[], None],
    ) -> None:
        syncs = durability == FSYNC
        super().__init__(
            directory, catalog, log_id, segment_bytes, syncs=syncs, prepare_ahead=prepare_ahead
        )
        self._buffers = durability == MEMORY
        self._confirmed, self._rolled = confirmed, rolled
        self.commit = GroupCommit(self.lock, self._write, self.poison)
        self.end_index = self.next_index
        self.sync_seconds = 0.0  # how long the last syncs took, on average
        self.last_time_ns = catalog.last.max_time_ns if catalog.last else 0

    def submit(
        self, records: Sequence[bytes], *, lazy: bool, urgent: bool, leave: int = 0
    ) -> Ticket:
        """Assign indices to the records and add them to a group."""
        cost = cost_of(records)
        if cost > FRAME_BYTES_MAX:
            raise RecordTooLargeError(self.directory.path, cost, FRAME_BYTES_MAX)
        commit, buffers = self.commit, self._buffers
        with not_reentrant(self.lock):
            segment = self._filling
            if self.stopped is not None or segment is None or not segment.fits(cost):
                segment = self._allocate(cost, urgent=urgent, leave=leave)
            if (lazy or buffers) and not commit.armed:
                commit.arm()
            first_index = self.next_index
            end_index = first_index + len(records)
            group = commit.group_for(segment, first_index, cost)
            if buffers and group.payload_bytes + cost > BUFFER_BYTES:
                commit.write_soon(group)
            ticket = Ticket(commit, CONFIRMED if buffers else group, first_index, len(records))
            # No calls from here on: an interrupt must find all of this done, or none.
            segment.planned += cost
            group.payload_bytes += cost
            group.records += records
            self.next_index = end_index
        return ticket

    def append(self, records: Sequence[bytes], *, urgent: bool = False, leave: int = 0) -> int:
        """Append and wait. A single writer leads at once, without a group or a ticket."""
        self.commit.refuse_if_engaged()
        first_index = (
            self.write_one_now(records[0]) if len(records) == 1 else self.write_now(records)
        )
        if first_index is None:
            return self.submit(records, lazy=False, urgent=urgent, leave=leave).wait()
        if self.syncs:
            self.sync()
        return first_index

    def write_now(self, records: Sequence[bytes]) -> int | None:
        """Write these now and return the first index; None if another thread writes or no space.

        Pending records without waiters are written in the same frame. At level fsync the
        caller becomes the leader and must call `sync`; else the records are confirmed.
        """
        cost = cost_of(records)
        commit = self.commit
        leads, lock = False, not_reentrant(self.lock)
        try:
            with lock:
                segment, groups = self._active, commit.groups
                if (
                    commit.leader
                    or segment is None
                    or segment is not self._filling
                    or self.stopped is not None
                    or cost > GROUP_BYTES_MAX
                    or not segment.fits(cost)
                    or (groups and not commit.take_unawaited(segment, cost))
                ):
                    return None
                lazy = commit.under_way
                commit.leader = get_ident()
                first_index = self.next_index
                self.next_index = first_index + len(records)
                segment.planned += cost
                self._write_frame(segment, records if lazy is None else [*lazy.records, *records])
                leads = self.syncs or lazy is not None
                if leads:
                    commit.engaged[commit.leader] = None
                else:
                    commit.leader = 0
            if leads and not self.syncs:
                commit.end_lead()
        except BaseException as error:
            commit.abandon(error)
            raise
        return first_index

    # The next two are the hot path. `with` would cost twice as much as these calls of the lock.
    # A handler may raise after `acquire`, so that is within the `try`; `release` knows who has it.

    def write_one_now(self, record: bytes) -> int | None:
        """`write_now` for one small record with nothing pending."""
        cost, index = _SINGLE_BYTES + len(record), -1
        commit, segment, lock = self.commit, self._active, self.lock
        someone_leads = commit.leader  # read without the lock; checked again with it
        if someone_leads:
            return None
        if segment is None or cost > JOIN_BYTES_MAX:
            return self.write_now((record,))
        if lock._is_owned():
            raise reentrant_call()
        try:
            try:
                lock.acquire()
                if (
                    not commit.leader
                    and not commit.groups
                    and segment is self._filling
                    and self.stopped is None
                    and segment.planned + cost <= segment.plain_end
                ):
                    me = commit.leader = get_ident()
                    segment.planned += cost
                    now = time.time_ns()
                    if now < self.last_time_ns:
                        now = self.last_time_ns
                    end = segment.write_single(record, now, self.synced_index)
                    self.last_time_ns = now
                    self.next_index = end
                    if self.syncs:
                        commit.engaged[me] = None
                    else:
                        commit.leader = 0
                        self.end_index = end
                        self._confirmed(end)
                    index = end - 1
            except BaseException:
                try:  # noqa: SIM105 - no call may come before it
                    lock.release()
                except RuntimeError:  # it was not acquired
                    pass
                raise
            lock.release()
        except BaseException as error:
            commit.abandon(error)
            if isinstance(error, OSError) and self.poisoned is not None:
                raise self.poisoned from error
            raise
        return index if index >= 0 else self.write_now((record,))

    def buffer_one(self, record: bytes) -> int | None:
        """Level memory: put one record into the buffer that fills, if there is one; its index."""
        cost, index, lock = _SINGLE_BYTES + len(record), None, self.lock
        if lock._is_owned():
            raise reentrant_call()
        try:
            lock.acquire()
            segment = self._filling
            group = self.commit.groups[-1] if self.commit.groups else None
            if (
                group is not None
                and segment is not None
                and group.segment is segment
                and group.payload_bytes + cost <= BUFFER_BYTES
                and segment.planned + cost <= segment.plain_end
                and self.stopped is None
            ):
                index = self.next_index
                segment.planned += cost
                group.payload_bytes += cost
                group.records += (record,)
                self.next_index = index + 1
        except BaseException:
            try:  # noqa: SIM105 - no call may come before it
                lock.release()
            except RuntimeError:  # it was not acquired
                pass
            raise
        lock.release()
        return index

    def sync(self) -> None:
        """Level fsync: sync and confirm what `write_now` wrote, and end the lead."""
        try:
            segment = self._active
            assert segment is not None
            self._sync(segment)
            self.commit.end_lead()
        except BaseException as error:
            self.commit.abandon(error)
            raise

    def halt(self, error: BaseException) -> None:
        """Accept no more records, because the owner's state is unknown; keep what was accepted."""
        if self.stopped is None:
            cause = f"interrupted by {type(error).__name__}: {error}"
            self.stopped = LogPoisonedError(self.directory.path, cause)

    def _allocate(self, cost: int, *, urgent: bool = False, leave: int = 0) -> SegmentWriter:
        """Lock held: a segment with allocated space for `cost`."""
        if self.stopped is not None:
            raise self.stopped
        try:
            segment = self._segment_for(cost, urgent=urgent, leave=leave)
        except OSError as error:
            raise self.poison(error) from error
        if segment is None:
            raise LogFullError(self.directory.path, cost)
        return segment

    def _write(self, group: Group) -> None:
        """Write one group as one frame, and sync it at level fsync."""
        segment = group.segment
        assert segment is not None
        if self.poisoned is not None:
            raise self.poisoned
        if segment is not self._active:
            self._roll(segment)
        self._write_frame(segment, group.records)
        if self.syncs:
            self._sync(segment)

    def _write_frame(self, segment: SegmentWriter, records: Sequence[bytes]) -> None:
        """Write the records as one frame; below level fsync that confirms them."""
        with self._or_poisoned():
            now = max(time.time_ns(), self.last_time_ns)
            segment.write_records(records, now, self.synced_index)
        self.last_time_ns = now
        if not self.syncs:
            self.end_index = segment.segment.end_index
            self._confirmed(self.end_index)

    def _sync(self, segment: SegmentWriter) -> None:
        began = time.perf_counter()
        try:  # `_or_poisoned` would cost a microsecond for each confirmed record
            segment.sync()
        except OSError as error:
            raise self.poison(error) from error
        except BaseException as error:
            self.poison(error)
            raise
        self.sync_seconds += (time.perf_counter() - began - self.sync_seconds) / 8
        self.synced_index = self.end_index = segment.segment.end_index
        self._confirmed(self.end_index)

    def append_committed(self, records: Sequence[bytes] | EncodedRecords, meta: bytes) -> int:
        """Append the records, if any, and a commit in one frame; returns the first index."""
        with self._exclusively():
            first, now = self.next_index, max(time.time_ns(), self.last_time_ns)
            end = first + len(records)
            cost = cost_of(records) + len(meta) + COMMIT_BYTES_MAX
            if cost > FRAME_BYTES_MAX:
                raise RecordTooLargeError(self.directory.path, cost, FRAME_BYTES_MAX)
            active = self._exclusive_segment(cost)
            commit = Commit(first, end, meta, now, active.segment.commit_offset)
            payload, data_bytes = encode_all(records) if records else (b"", 0)
            with self._or_poisoned():
                self._sync_if_needed(active)
                frame = active.write_frame(
                    DATA if records else COMMIT,
                    payload + encode_commit(commit),
                    now,
                    self.synced_index,
                    len(records),
                    data_bytes,
                    COMMITTING if records else 0,
                )
                active.sync()
            active.segment.commit_offset = frame.offset
            self.last_time_ns = now
            if records:
                self.next_index = self.synced_index = self.end_index = end
                self._confirmed(end)
        return first

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Drain the writer and lock it, so that the caller may write."""
        while True:
            self.commit.drain()
            self.lock.acquire()
            if self.commit.idle:
                break
            self.lock.release()
        try:
            if self.stopped is not None:
                raise self.stopped
            yield
        finally:
            self.lock.release()

    def _exclusive_segment(self, cost: int) -> SegmentWriter:
        """Return the open segment, with space for `cost`, and all before it sealed."""
        segment = self._filling
        if segment is None or not segment.fits(cost):
            segment = self._allocate(cost)
        segment.planned += cost
        if segment is not self._active:
            self._roll(segment)
        return segment

    def _roll(self, segment: SegmentWriter) -> None:
        """Seal the active segment and continue in the next."""
        full, self._active = self._active, segment
        if full is not None:
            with self._or_poisoned():
                self._seal(full)
            self._rolled()

    def close(self) -> None:
        """Write what was submitted, seal and sync; if poisoned, only close the files."""
        with not_reentrant(self.lock):
            self.stopped = self.stopped or LogClosedError(self.directory.path)
        with contextlib.suppress(LogPoisonedError):
            self.commit.drain()
        self.commit.stop()
        self._close_segments()
