"""The one writer of a log: gives out indices, keeps room ahead, rolls segments, commits groups.

Room is found before a record gets its index, so a full disk is an error of `submit` with
nothing changed. After that a group can only be confirmed, or the writer is poisoned: a failed
write or sync is never retried, because the page cache no longer says what is on disk.
At level fsync at most one frame is written and not yet synced at any time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident

import msgspec

from pillarbox.log.catalog import Catalog, Segment
from pillarbox.log.commit import GROUP_BYTES_MAX, GroupCommit, Ticket
from pillarbox.log.commits import Commit, encode_commit
from pillarbox.log.disk import Disk
from pillarbox.log.errors import (
    LogClosedError,
    LogError,
    LogFullError,
    LogPoisonedError,
    RecordTooLargeError,
)
from pillarbox.log.frame import COMMIT, COMMITTING, DATA, FRAME_BYTES_MAX, encode_records
from pillarbox.log.group import Group
from pillarbox.log.layout import PENDING_SUFFIX
from pillarbox.log.recovery import Recovery
from pillarbox.log.room import Room
from pillarbox.log.segment import (
    FRAME_OVERHEAD_BYTES,
    JOIN_BYTES_MAX,
    SegmentWriter,
    cost_of,
)
from pillarbox.mutex import Mutex

FSYNC, OS, MEMORY = "fsync", "os", "memory"
_SINGLE_BYTES = FRAME_OVERHEAD_BYTES + 4


class Writer(Room):
    """Appends to one log directory. Its lock guards indices and room; one leader writes."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        catalog: Catalog,
        recovered: Recovery,
        *,
        log_id: bytes,
        durability: str,
        segment_bytes: int,
        prepare_ahead: bool,
        confirmed: Callable[[int], None],
        rolled: Callable[[], None],
    ) -> None:
        super().__init__(
            disk,
            directory,
            catalog,
            recovered,
            log_id=log_id,
            segment_bytes=segment_bytes,
            prepare_ahead=prepare_ahead,
        )
        self.syncs = durability == FSYNC
        self._confirmed, self._rolled = confirmed, rolled
        self.lock = Mutex()
        self.commit = GroupCommit(self.lock, self._write, self.poison)
        self.end_index = self.next_index
        last = catalog.segments[-1] if catalog.segments else None
        self.last_time_ns = last.max_time_ns if last else 0
        self.stopped: LogError | None = None
        self.poisoned: LogPoisonedError | None = None

    # -- accepting records -----------------------------------------------------------------

    def submit(
        self, records: Sequence[bytes], *, lazy: bool, urgent: bool, leave: int = 0
    ) -> Ticket:
        """Give the records their indices and a place in a group."""
        cost = cost_of(records)
        if cost > FRAME_BYTES_MAX:
            raise RecordTooLargeError(self.directory, cost, FRAME_BYTES_MAX)
        with self.lock:
            segment = self._filling
            if self.stopped is not None or segment is None or not segment.fits(cost):
                segment = self._make_room(cost, urgent=urgent, leave=leave)
            if lazy:
                self.commit.arm()
            first_index = self.next_index
            end_index = first_index + len(records)
            group = self.commit.group_for(segment, first_index, cost)
            ticket = Ticket(self.commit, group, first_index, len(records))
            # No call from here on: a signal handler that raises finds all of this done, or none.
            segment.planned += cost
            group.payload_bytes += cost
            group.records += records
            self.next_index = end_index
        return ticket

    def append(self, records: Sequence[bytes], *, urgent: bool = False, leave: int = 0) -> int:
        """Append and wait. A lone writer leads at once, with no group and no ticket."""
        self.commit.refuse_if_engaged()
        first_index = self.lead_one(records[0]) if len(records) == 1 else self.lead(records)
        if first_index is None:
            return self.submit(records, lazy=False, urgent=urgent, leave=leave).wait()
        if self.syncs:
            self.sync()
        return first_index

    def lead(self, records: Sequence[bytes]) -> int | None:
        """Write these now, if nobody else writes and there is room; the first index, or None.

        What nobody waits for goes with them, in the same frame. At level fsync the caller leads
        from then on, and must call `sync`; else they are confirmed.
        """
        cost = cost_of(records)
        commit = self.commit
        leads = False
        try:
            with self.lock:
                segment, groups = self._active, commit.groups
                if (
                    commit.leader
                    or segment is None
                    or segment is not self._filling
                    or self.stopped is not None
                    or cost > GROUP_BYTES_MAX
                    or not segment.fits(cost)
                    or (groups and not commit.take_unwanted(segment, cost))
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
                commit.lead_is_over()
        except BaseException as error:
            commit.abandon(error)
            raise
        return first_index

    def lead_one(self, record: bytes) -> int | None:
        """`lead` for one small record with nothing pending: this stands on the hot path."""
        cost = _SINGLE_BYTES + len(record)
        commit, segment = self.commit, self._active
        someone_leads = commit.leader  # as seen without the lock; looked at again with it
        if someone_leads:
            return None
        if segment is None or cost > JOIN_BYTES_MAX:
            return self.lead((record,))
        try:
            with self.lock:
                if (
                    not commit.leader
                    and not commit.groups
                    and segment is self._filling
                    and self.stopped is None
                    and segment.planned + cost <= segment.plain_end
                ):
                    return self._write_single(segment, record, cost)
        except BaseException as error:
            commit.abandon(error)
            if isinstance(error, OSError) and self.poisoned is not None:
                raise self.poisoned from error
            raise
        return self.lead((record,))

    def _write_single(self, segment: SegmentWriter, record: bytes, cost: int) -> int:
        """Lock held: write it, and lead from then on if it has to be synced; its index."""
        commit = self.commit
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
        return end - 1

    @property
    def leads(self) -> bool:
        """Whether this thread has to `sync` what it wrote by `lead`."""
        return self.commit.leader == get_ident()

    def sync(self) -> None:
        """Level fsync: confirm what `lead` wrote, and lead no more."""
        try:
            segment = self._active
            assert segment is not None
            self._sync(segment)
            self.commit.lead_is_over()
        except BaseException as error:
            self.commit.abandon(error)
            raise

    def halt(self, error: BaseException) -> None:
        """Take nothing more, because whoever writes has lost count; what was taken is kept."""
        if self.stopped is None:
            cause = f"interrupted by {type(error).__name__}: {error}"
            self.stopped = LogPoisonedError(self.directory, cause)

    def _make_room(self, cost: int, *, urgent: bool, leave: int = 0) -> SegmentWriter:
        """Lock held: a segment with reserved room for `cost`, found or made."""
        if self.stopped is not None:
            raise self.stopped
        try:
            segment = self.room_for(cost, urgent=urgent, leave=leave)
        except OSError as error:
            raise self.poison(error) from error
        if segment is None:
            raise LogFullError(self.directory, cost)
        return segment

    # -- committing (one leader at a time) -------------------------------------------------

    def _write(self, group: Group) -> None:
        """Write one group as one frame and make it as durable as the level says."""
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
        """Write the records as one frame; unless it has to be synced, that confirms them."""
        with self._or_poisoned():
            now = max(time.time_ns(), self.last_time_ns)
            segment.write_records(records, now, self.synced_index)
        self.last_time_ns = now
        if not self.syncs:
            self.end_index = segment.end_index
            self._confirmed(segment.end_index)

    def _sync(self, segment: SegmentWriter) -> None:
        try:
            segment.sync()
        except OSError as error:
            raise self.poison(error) from error
        except BaseException as error:
            self.poison(error)
            raise
        self.synced_index = self.end_index = segment.end_index
        self._confirmed(segment.end_index)

    def _roll(self, segment: SegmentWriter) -> None:
        """Seal the segment that is full, and go on in the next."""
        full, self._active = self._active, segment
        if full is None:
            return
        with self._or_poisoned():
            self._seal(full)
        self._rolled()

    def _seal(self, writer: SegmentWriter) -> None:
        """Footer, then (level fsync) on disk before anything follows it."""
        footer = writer.seal(self.synced_index)
        if self.syncs:
            writer.sync()
            writer.close()
        else:
            self.spares.sync_later(writer, self._synced)
        self._listed(writer).seal(footer, writer.position)

    def _synced(self, segment: SegmentWriter, error: OSError | None) -> None:
        """A sealed segment reached the disk (or failed to) while others were being written."""
        if error is not None:
            self.poison(error)
        else:
            self.synced_index = max(self.synced_index, segment.end_index)

    # -- adopting staged segments ----------------------------------------------------------

    def settled_segment(self, cost: int) -> SegmentWriter:
        """Exclusive: the one open segment, with room for `cost`, all before it sealed."""
        segment = self._filling
        if segment is None or not segment.fits(cost):
            segment = self._make_room(cost, urgent=False)
        segment.planned += cost
        if segment is not self._active:
            self._roll(segment)
        return segment

    def write_commit(
        self,
        active: SegmentWriter,
        commit: Commit,
        adopted: Sequence[Segment] = (),
        records: Sequence[bytes] = (),
    ) -> None:
        """Exclusive: one frame makes the pending files, or the records in it, part of the log."""
        commit = msgspec.structs.replace(commit, previous_offset=active.commit_offset)
        now = max(commit.time_ns, self.last_time_ns)
        with self._or_poisoned():
            self._sync_if_needed(active)
            payload, data_bytes = encode_records(records) if records else (b"", 0)
            active.write_frame(
                DATA if records else COMMIT,
                payload + encode_commit(commit),
                time_ns=now,
                synced=self.synced_index,
                count=len(records),
                data_bytes=data_bytes,
                flags=COMMITTING if records else 0,
            )
            active.sync()
            self._listed(active).commit_offset = active.commit_offset
            if adopted:
                self._take_in(active, commit, adopted)
        self.last_time_ns = max(self.last_time_ns, now)
        if records:
            self.next_index = self.synced_index = self.end_index = commit.end_index
            self._confirmed(commit.end_index)

    def _take_in(self, active: SegmentWriter, commit: Commit, adopted: Sequence[Segment]) -> None:
        """Committed: seal the segment before the adopted ones and give them their names."""
        self._active = self._filling = None
        self._seal(active)
        for name in commit.files:
            path = f"{self.directory}/{name}"
            self.disk.rename(path + PENDING_SUFFIX, path)
        self.disk.sync_directory(self.directory)
        for segment in adopted:
            self._catalog.add(segment)
        self.last_time_ns = max(self.last_time_ns, adopted[-1].max_time_ns)
        self.next_index = self.synced_index = self.end_index = commit.end_index
        self._confirmed(commit.end_index)

    def _sync_if_needed(self, segment: SegmentWriter) -> None:
        """Everything in the segment is on disk after this; at level fsync it mostly is before."""
        if not self.syncs or self.synced_index < segment.end_index:
            segment.sync()
            self.synced_index = segment.end_index

    # -- the end ---------------------------------------------------------------------------

    def poison(self, cause: BaseException) -> LogPoisonedError:
        """No confirmation after this; the first cause is the one that is told."""
        if self.poisoned is None:
            self.poisoned = LogPoisonedError(self.directory, f"{type(cause).__name__}: {cause}")
            self.stopped = self.poisoned
        return self.poisoned

    @contextlib.contextmanager
    def _or_poisoned(self) -> Iterator[None]:
        """What fails or is interrupted in here leaves the disk in an unknown state."""
        try:
            yield
        except OSError as error:
            raise self.poison(error) from error
        except BaseException as error:
            self.poison(error)
            raise

    def close(self) -> None:
        """Write what was submitted, seal, sync; after a poisoning only let go of the files."""
        with self.lock:
            self.stopped = self.stopped or LogClosedError(self.directory)
        with contextlib.suppress(LogPoisonedError):
            self.commit.drain()
        self.commit.stop()
        with contextlib.suppress(OSError):  # they are in nobody's way
            self.spares.drop_all()
        active, filling = self._active, self._filling
        self._active = self._filling = None
        try:
            for writer in (active, filling if filling is not active else None):
                if writer is not None and self.poisoned is None:
                    self._seal_for_good(writer)
            with contextlib.suppress(OSError):  # with the rest of a file that was used in part
                self.reserve.fill()
        finally:
            if self.poisoned is not None:
                self._let_go(active, filling)

    def _seal_for_good(self, writer: SegmentWriter) -> None:
        with self._or_poisoned():
            self._sync_if_needed(writer)
            footer = writer.seal(self.synced_index)
            writer.sync()
        writer.close()
        self._listed(writer).seal(footer, writer.position)

    def _let_go(self, *writers: SegmentWriter | None) -> None:
        for writer in {id(each): each for each in writers if each is not None}.values():
            with contextlib.suppress(OSError):
                writer.close()
