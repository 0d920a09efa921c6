"""Writes adopted segments as version 0.1 did: such logs must open, verify and repair for ever.

Files written elsewhere were linked into the log under pending names, named by a commit frame, and
then renamed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from pillarbox.log import Log
from pillarbox.log.catalog import Segment
from pillarbox.log.commit_frames import Commit, encode_commit
from pillarbox.log.disk import Disk, write_all
from pillarbox.log.frame import COMMIT, DATA, encode_records
from pillarbox.log.layout import PENDING_SUFFIX, STAGED, Footer, SegmentHeader, segment_name
from pillarbox.log.segment import SegmentWriter, new_epoch

STAGED_BYTES_MAX = 1 << 20
Staged = tuple[str, SegmentHeader, Footer, int]


def stage(disk: Disk, path: str, records: Sequence[bytes]) -> Staged:
    """A segment outside the log whose indices count from 0, two records a frame."""
    header = SegmentHeader(secrets.token_bytes(16), new_epoch(), 0, 0, time.time_ns(), STAGED)
    handle = disk.open(path, write=True, create=True)
    write_all(disk, handle, [header.encode()], 0)
    writer = SegmentWriter(disk, handle, header, STAGED_BYTES_MAX, reserved=STAGED_BYTES_MAX)
    for start in range(0, len(records), 2):
        some = records[start : start + 2]
        payload, size = encode_records(some)
        writer.write_frame(
            DATA, payload, time_ns=time.time_ns(), synced=0, count=len(some), data_bytes=size
        )
    footer = writer.seal(writer.end_index)
    writer.sync()
    writer.close()
    disk.sync_directory(path.rpartition("/")[0] or ".")
    return path, header, footer, writer.position


def adopt(log: Log, staged: Sequence[Staged], meta: bytes) -> int:
    """Add staged segments to a log with one commit frame; returns their first index."""
    disk, writer, directory = log._disk, log._writer, log.path
    with writer._exclusively():
        first = base = writer.next_index
        segments = []
        for path, header, footer, size in staged:
            segment = Segment(segment_name(base, adopted=True), base, base, header, footer.index)
            segment.seal(footer, size)
            base = segment.end_index
            segments.append(segment)
            disk.link(path, f"{directory}/{segment.name}{PENDING_SUFFIX}")
        disk.sync_directory(directory)
        active = writer._exclusive_segment(512 + 64 * len(staged))
        writer._sync_if_needed(active)
        now = max(time.time_ns(), writer.last_time_ns)
        commit = Commit(
            first,
            base,
            [each.name for each in segments],
            meta,
            now,
            active.commit_offset,
            [each.header.epoch for each in segments],
        )
        payload = encode_commit(commit)
        active.write_frame(COMMIT, payload, time_ns=now, synced=writer.synced_index)
        active.sync()
        writer._listed(active).commit_offset = active.commit_offset
        writer._active = writer._filling = None
        writer._seal(active)
        for segment in segments:
            path = f"{directory}/{segment.name}"
            disk.rename(path + PENDING_SUFFIX, path)
        disk.sync_directory(directory)
        for segment in segments:
            writer._catalog.add(segment)
        writer.last_time_ns = max(now, segments[-1].max_time_ns)
        writer.next_index = writer.synced_index = writer.end_index = base
        writer._confirmed(base)
    return first
