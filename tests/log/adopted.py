"""Writes adopted segments as version 0.1 did: such logs must open, verify and repair for ever.

Files written elsewhere were linked into the log under pending names, named by a commit frame, and
then renamed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from pillarbox.log import Log
from pillarbox.log.commits import Commit, encode_commit
from pillarbox.log.directory import PENDING_SUFFIX, segment_name
from pillarbox.log.disk import Disk, write_all
from pillarbox.log.frame import COMMIT
from pillarbox.log.layout import STAGED, SegmentHeader, index_stride
from pillarbox.log.segment_writer import SegmentWriter, new_epoch
from pillarbox.log.segments import Segment, load_segment

STAGED_BYTES_MAX = 1 << 20


def stage(disk: Disk, path: str, records: Sequence[bytes]) -> str:
    """A segment outside the log whose indices count from 0, two records a frame."""
    header = SegmentHeader(secrets.token_bytes(16), new_epoch(), 0, 0, time.time_ns(), STAGED)
    handle = disk.open(path, write=True, create=True)
    write_all(disk, handle, [header.encode()], 0)
    segment = Segment(segment_name(0), header, index_stride(STAGED_BYTES_MAX))
    writer = SegmentWriter(disk, handle, segment, STAGED_BYTES_MAX, reserved=STAGED_BYTES_MAX)
    for start in range(0, len(records), 2):
        writer.write_records(records[start : start + 2], time.time_ns(), 0)
    writer.seal(segment.end_index)
    writer.sync()
    writer.close()
    disk.sync_directory(path.rpartition("/")[0] or ".")
    return path


def adopt(log: Log, staged: Sequence[str], meta: bytes) -> int:
    """Add staged segments to a log with one commit frame; returns their first index."""
    writer, directory = log._writer, log._directory
    with writer._exclusively():
        first = base = writer.next_index
        segments = []
        for path in staged:
            name = segment_name(base, adopted=True)
            directory.disk.link(path, directory.path_of(name + PENDING_SUFFIX))
            segment = load_segment(directory, name + PENDING_SUFFIX)
            assert segment is not None
            segment.name = name
            base = segment.end_index
            segments.append(segment)
        directory.sync()
        active = writer._exclusive_segment(512 + 64 * len(staged))
        writer._sync_if_needed(active)
        now = max(time.time_ns(), writer.last_time_ns)
        commit = Commit(
            first,
            base,
            [each.name for each in segments],
            meta,
            now,
            active.segment.commit_offset,
            [each.header.epoch for each in segments],
        )
        frame = active.write_frame(COMMIT, encode_commit(commit), now, writer.synced_index)
        active.sync()
        active.segment.commit_offset = frame.offset
        writer._active = writer._filling = None
        writer._seal(active)
        for segment in segments:
            directory.rename(segment.name + PENDING_SUFFIX, segment.name)
        directory.sync()
        for segment in segments:
            writer._catalog.add(segment)
        writer.last_time_ns = max(now, segments[-1].max_time_ns)
        writer.next_index = writer.synced_index = writer.end_index = base
        writer._confirmed(base)
    return first
