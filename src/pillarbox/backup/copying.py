"""Copies the files of a store consistently, without stopping its writer.

Every frame is checked as it is copied. The copy is written to a temporary directory and renamed
once it is complete and on disk, so a directory with the name of a backup is always complete.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator

import google_crc32c

from pillarbox.backup.files import SNAPSHOT_HEAD_BYTES, Files
from pillarbox.core.errors import MailboxError
from pillarbox.log import LogReader, RealDisk
from pillarbox.log.confirmed import FILE as CONFIRMED_FILE
from pillarbox.log.confirmed import ConfirmedIndex
from pillarbox.log.directory import LogDirectory, base_of_name
from pillarbox.log.disk import make_directory, opened, sync, write_all
from pillarbox.log.segments import (
    evidence_of_damage,
    load_segment,
    scan,
    valid_frames,
    why_not_named,
)
from pillarbox.mailbox.broker.wire import StoreListing
from pillarbox.mailbox.data_directory import LOG
from pillarbox.mailbox.store_files import SNAPSHOT_FILE, faults, read_snapshot

PIECE_BYTES = 4 << 20
_PARTIAL = ".partial"
_ATTEMPTS = 50
_PAUSE_SECONDS = 0.005
_disk = RealDisk()

Progress = Callable[[int, int], None]


class BackupError(MailboxError):
    """The store could not be copied; there is no backup."""


class _Changed(Exception):
    """A listed file was dropped, replaced or not complete when it was copied."""


def backup(files: Files, directory: str, progress: Progress = lambda done, total: None) -> int:
    """Copy a store to a new directory; return the number of bytes."""
    if os.path.lexists(directory):
        raise BackupError(f"{directory} exists already; give the name of a new directory")
    partial = directory.rstrip("/") + _PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    make_directory(_disk, f"{partial}/{LOG}")
    try:
        size = _Copy(files, partial, progress).make()
        os.rename(partial, directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _disk.sync_directory(os.path.dirname(os.path.abspath(directory)))
    return size


class _Copy:
    """A backup in progress."""

    def __init__(self, files: Files, directory: str, progress: Progress) -> None:
        self._files, self._directory, self._progress = files, directory, progress
        self._log = LogDirectory(_disk, f"{directory}/{LOG}")
        self._complete: dict[str, int] = {}  # sealed segments already copied, with their sizes
        self._end = 0  # the index after the last copied record

    def make(self) -> int:
        for _ in range(_ATTEMPTS):
            listing = self._files.listing()
            try:
                return self._copy(listing)
            except _Changed:  # keep the sealed segments already copied, so less is left to copy
                time.sleep(_PAUSE_SECONDS)
        raise BackupError(
            f"the store dropped files before they were copied, {_ATTEMPTS} times in a row; try"
            " again when it is less busy, or from a machine that is closer to it"
        )

    def _copy(self, listing: StoreListing) -> int:
        total = 0
        self._complete = {
            name: self._complete[name] for name in listing.segments if name in self._complete
        }
        for name in self._log.segment_names():
            if name not in self._complete:  # dropped since, or copied partially
                self._log.unlink(name)
        for number, name in enumerate(listing.segments):
            self._progress(number, len(listing.segments))
            following = listing.segments[number + 1 : number + 2]
            total += self._complete.get(name) or self._segment(name, following, listing)
        total += self._snapshot(listing)
        for name, content in listing.small.items():
            make_directory(_disk, os.path.dirname(f"{self._directory}/{name}"))
            total += self._write(name, [content])
        self._confirm()
        self._log.sync()
        _disk.sync_directory(self._directory)
        self._check_consistency(listing)
        return total

    def _segment(self, name: str, following: list[str], listing: StoreListing) -> int:
        """Copy one segment up to its last valid frame; return its size."""
        size = self._fetch(name, f"{LOG}/{name}")
        segment = load_segment(self._log, name)
        if segment is None:
            raise self._damaged(name, "its header block fails its checksum")
        problem = why_not_named(segment)
        if problem is not None:
            raise self._damaged(name, problem)
        image = self._log.map(name)
        scanned = scan(image, name, segment.header)
        expected_end = base_of_name(following[0]) if following else listing.confirmed
        self._end = end = scanned.end_index
        if end < expected_end and following and listing.confirmed and not segment.sealed:
            raise _Changed  # the writer has begun the next one, but not finished this one
        if end < expected_end or (following and end != expected_end):
            raise self._damaged(name, f"its records end at {end}, not at {expected_end}")
        if not scanned.sealed and not listing.confirmed:  # there is no writer
            rest = valid_frames(image, segment.header, scanned.end_offset)
            if evidence_of_damage(rest, end) is not None:
                what = f"the frame at byte {scanned.end_offset}, before valid ones, is not valid"
                raise self._damaged(name, what)
        if not scanned.sealed:  # still being written: an incomplete frame may follow
            size = scanned.end_offset
            with self._log.opened(name, write=True) as handle:
                _disk.truncate(handle, size)
                sync(_disk, handle)
        elif following:
            self._complete[name] = size
        return size

    def _damaged(self, name: str, what: str) -> Exception:
        """Return the error for a bad segment: dropped while it was copied, or damaged."""
        if name not in self._files.listing().segments:
            return _Changed()
        return BackupError(f"the segment {name} is damaged: {what}; nothing was copied")

    def _snapshot(self, listing: StoreListing) -> int:
        if not listing.snapshot_head:
            return 0
        size = self._fetch(SNAPSHOT_FILE, SNAPSHOT_FILE)
        with opened(_disk, f"{self._directory}/{SNAPSHOT_FILE}") as handle:
            content = _disk.pread(handle, size, 0)
        checksum = int(google_crc32c.value(content[SNAPSHOT_HEAD_BYTES:])).to_bytes(4, "little")
        if content[:SNAPSHOT_HEAD_BYTES] != listing.snapshot_head:
            raise _Changed
        if content[SNAPSHOT_HEAD_BYTES - 4 : SNAPSHOT_HEAD_BYTES] != checksum:
            if self._files.listing().snapshot_head != listing.snapshot_head:
                raise _Changed
            raise BackupError("the snapshot of the store is damaged; nothing was copied")
        return size

    def _confirm(self) -> None:
        """Record that everything copied is confirmed: it is on disk now."""
        with ConfirmedIndex(self._log, write=True) as confirmed:
            confirmed.set(self._end)
        with self._log.opened(CONFIRMED_FILE, write=True) as handle:
            sync(_disk, handle)

    def _check_consistency(self, listing: StoreListing) -> None:
        if not listing.segments:
            return
        state = read_snapshot(_disk, self._directory)
        with LogReader(self._log.path, _disk) as log:
            identity = log.log_id.hex(), log.first_index, log.end_index
        for fault in faults(_disk, self._directory, state, *identity):
            raise BackupError(f"{fault.file} of the store {fault.what}; nothing was copied")

    def _fetch(self, name: str, to: str) -> int:
        """Copy a file in pieces; return its size."""

        def pieces() -> Iterator[bytes]:
            offset = 0
            while piece := self._files.read(name, offset, PIECE_BYTES):
                yield piece
                offset += len(piece)

        try:
            return self._write(to, pieces())
        except FileNotFoundError:
            raise _Changed from None

    def _write(self, name: str, pieces: Iterable[bytes]) -> int:
        size = 0
        with opened(_disk, f"{self._directory}/{name}", write=True, create=True) as handle:
            _disk.truncate(handle, 0)
            for piece in pieces:
                write_all(_disk, handle, [piece], size)
                size += len(piece)
            sync(_disk, handle)
        return size
