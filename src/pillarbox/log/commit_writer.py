"""The writer of commits: records and metadata in one frame."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from pillarbox.log.commit_frames import Commit, encode_commit
from pillarbox.log.errors import RecordTooLargeError
from pillarbox.log.frame import COMMIT, COMMITTING, DATA, FRAME_BYTES_MAX, encode_records
from pillarbox.log.segment import SegmentWriter, cost_of
from pillarbox.log.writer import Writer

#: More than a commit takes beyond its metadata (about 130 bytes).
_COMMIT_BYTES_MAX = 256


class CommitWriter(Writer):
    """A writer that can also write commits."""

    def append_committed(self, records: Sequence[bytes], meta: bytes) -> int:
        """Append the records, if any, and the commit in one frame; returns the first index."""
        with self._exclusively():
            first, now = self.next_index, max(time.time_ns(), self.last_time_ns)
            end = first + len(records)
            cost = cost_of(records) + len(meta) + _COMMIT_BYTES_MAX
            if cost > FRAME_BYTES_MAX:
                raise RecordTooLargeError(self.directory, cost, FRAME_BYTES_MAX)
            active = self._exclusive_segment(cost)
            commit = Commit(first, end, [], meta, now, previous_offset=active.commit_offset)
            payload, data_bytes = encode_records(records) if records else (b"", 0)
            with self._or_poisoned():
                self._sync_if_needed(active)
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
        """The open segment, with space for `cost`, and all before it sealed."""
        segment = self._filling
        if segment is None or not segment.fits(cost):
            segment = self._allocate(cost, urgent=False)
        segment.planned += cost
        if segment is not self._active:
            self._roll(segment)
        return segment
