"""Staged segments: written anywhere on the log's file system, then added by one commit frame.

A staged file is a segment whose indices count from 0. `adopt` links such files into the log
under pending names, writes the commit frame, and renames them; `commit_frames.py` describes what
a crash in between leaves. The staged files themselves are never changed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pillarbox.log.catalog import Segment, read_footer, read_header
from pillarbox.log.commit_frames import Commit, encode_commit
from pillarbox.log.commit_writer import CommitWriter
from pillarbox.log.disk import Disk, RealDisk, opened, write_all
from pillarbox.log.errors import LogCorruptError, LogError, RecordTooLargeError
from pillarbox.log.frame import DATA, FRAME_BYTES_MAX, encode_records
from pillarbox.log.layout import PENDING_SUFFIX, STAGED, Footer, SegmentHeader, segment_name
from pillarbox.log.scan import scan
from pillarbox.log.segment import FRAME_OVERHEAD_BYTES, SegmentWriter, cost_of, new_epoch

STAGED_BYTES_MAX = 1 << 30


class StagedSegment:
    """A segment file being written outside the log. `close` seals and syncs it."""

    def __init__(self, path: str | os.PathLike[str], *, disk: Disk | None = None) -> None:
        self.path = os.fspath(path)
        self._disk = disk if disk is not None else RealDisk()
        handle = self._disk.open(self.path, write=True, create=True)
        header = SegmentHeader(secrets.token_bytes(16), new_epoch(), 0, 0, time.time_ns(), STAGED)
        self._disk.truncate(handle, 0)
        write_all(self._disk, handle, [header.encode()], 0)
        self._writer = SegmentWriter(
            self._disk, handle, header, STAGED_BYTES_MAX, reserved=STAGED_BYTES_MAX
        )

    def append_many(self, records: Sequence[bytes]) -> None:
        """Write the records as one frame."""
        if records:
            self._write(*encode_records(records), len(records))

    def append_array(self, records: Any) -> None:
        """Write an Arrow binary array without nulls as one frame."""
        from pillarbox.log.arrow import encode_array  # noqa: PLC0415 - behind an extra

        if len(records):
            self._write(*encode_array(records), len(records))

    def _write(self, payload: bytes, data_bytes: int, count: int) -> None:
        cost = FRAME_OVERHEAD_BYTES + len(payload)
        if cost > FRAME_BYTES_MAX or not self._writer.fits(cost):
            raise LogError(f"the staged segment {self.path} is full; start another one")
        self._writer.planned += cost
        now = max(time.time_ns(), self._writer.max_time_ns)
        self._writer.write_frame(
            DATA, payload, time_ns=now, synced=0, count=count, data_bytes=data_bytes
        )

    @property
    def count(self) -> int:
        return self._writer.end_index

    @property
    def size_bytes(self) -> int:
        return self._writer.position

    def close(self) -> str:
        """Seal and sync the segment; returns its path, which may now be adopted."""
        self._writer.seal(self._writer.end_index)
        self._writer.sync()
        self._writer.close()
        directory = self.path.rpartition("/")[0] or "."
        self._disk.sync_directory(directory)
        return self.path


def check_staged(
    disk: Disk, path: str, *, verify: bool = True
) -> tuple[SegmentHeader, Footer, int]:
    """The header, footer and size of a staged file; `LogCorruptError` unless sealed and valid."""
    with opened(disk, path) as handle:
        header = read_header(disk, handle, path)
        if header is None or not header.flags & STAGED:
            raise LogCorruptError(path, "it is not a staged segment")
        size = disk.size(handle)
        if verify:
            found = scan(disk.map(handle, size), header)
            footer, end = found.footer, found.end_offset
        else:
            footer, end = read_footer(disk, handle, header), size
    if footer is None:
        raise LogCorruptError(path, "it is not sealed, or it is damaged", end)
    return header, footer, size


@contextlib.contextmanager
def _exclusively(writer: CommitWriter) -> Iterator[None]:
    """Drain the writer and lock it, so that the caller may write."""
    while True:
        writer.commit.drain()
        writer.lock.acquire()
        if writer.commit.idle:
            break
        writer.lock.release()
    try:
        if writer.stopped is not None:
            raise writer.stopped
        yield
    finally:
        writer.lock.release()


def adopt(
    writer: CommitWriter,
    paths: Sequence[str],
    meta: bytes,
    checked: Sequence[tuple[SegmentHeader, Footer, int]],
) -> int:
    """Link and commit the checked files; returns their first index."""
    files = [(p, c) for p, c in zip(paths, checked, strict=True) if c[1].end_index > 0]
    with _exclusively(writer):
        first = writer.next_index
        segments: list[Segment] = []
        for _, (header, footer, size) in files:
            base = segments[-1].end_index if segments else first
            name = segment_name(base, adopted=True)
            segment = Segment(name, base, base, header, footer.index)
            segment.seal(footer, size)
            segments.append(segment)
        end = segments[-1].end_index if segments else first
        names = [segment.name for segment in segments]
        epochs = [segment.header.epoch for segment in segments]
        commit = Commit(first, end, names, meta, time.time_ns(), epochs=epochs)
        active = writer.exclusive_segment(_cost_of(commit))
        _link(writer, [path for path, _ in files], names)
        writer.write_commit(active, commit, segments)
    return first


def append_committed(writer: CommitWriter, records: Sequence[bytes], meta: bytes) -> int:
    """Append the records and the commit in one frame; returns the first index."""
    cost = cost_of(records)
    with _exclusively(writer):
        first = writer.next_index
        commit = Commit(first, first + len(records), [], meta, time.time_ns())
        cost += _cost_of(commit)
        if cost > FRAME_BYTES_MAX:
            raise RecordTooLargeError(writer.directory, cost, FRAME_BYTES_MAX)
        writer.write_commit(writer.exclusive_segment(cost), commit, records=records)
    return first


def _cost_of(commit: Commit) -> int:
    # 16: what `previous_offset` may take once it is known.
    return len(encode_commit(commit)) + 16 + FRAME_OVERHEAD_BYTES


def _link(writer: CommitWriter, paths: Sequence[str], names: Sequence[str]) -> None:
    """Link all files, or none, into the log under pending names."""
    disk, directory = writer.disk, writer.directory
    linked: list[str] = []
    try:
        for path, name in zip(paths, names, strict=True):
            disk.link(path, f"{directory}/{name}{PENDING_SUFFIX}")
            linked.append(name)
        if linked:
            disk.sync_directory(directory)
    except OSError as error:
        for name in linked:
            with contextlib.suppress(OSError):
                disk.unlink(f"{directory}/{name}{PENDING_SUFFIX}")
        if error.errno == errno.EXDEV:
            raise LogError(
                f"a staged segment is on another file system than the log {directory};"
                " stage it next to the log"
            ) from error
        raise
