"""The writer of commits: metadata together with adopted segments, or with records.

The caller has drained the writer and holds its lock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pillarbox.log.catalog import Segment
from pillarbox.log.commit_frames import Commit, encode_commit
from pillarbox.log.frame import COMMIT, COMMITTING, DATA, encode_records
from pillarbox.log.layout import PENDING_SUFFIX
from pillarbox.log.segment import SegmentWriter
from pillarbox.log.writer import Writer


class CommitWriter(Writer):
    """A writer that can also write commits."""

    def exclusive_segment(self, cost: int) -> SegmentWriter:
        """The open segment, with space for `cost`, and all before it sealed."""
        segment = self._filling
        if segment is None or not segment.fits(cost):
            segment = self._allocate(cost, urgent=False)
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
        """Write a commit frame that adds the pending files, or its own records."""
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
                self._finish_adoption(active, commit, adopted)
        self.last_time_ns = max(self.last_time_ns, now)
        if records:
            self.next_index = self.synced_index = self.end_index = commit.end_index
            self._confirmed(commit.end_index)

    def _finish_adoption(
        self, active: SegmentWriter, commit: Commit, adopted: Sequence[Segment]
    ) -> None:
        """After the commit: seal the segment before the adopted ones, and rename those."""
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
