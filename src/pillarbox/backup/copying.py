"""Copies the files of a store, consistently, without stopping whoever writes to it.

Every frame is checked as it is copied. The copy is written next to its destination and renamed when
it is complete and on disk, so a directory that has the name of a backup is one.
"""

from __future__ import annotations

import os
import shutil
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
from pillarbox.mailbox.compactor import SNAPSHOT_FILE, read_snapshot
from pillarbox.mailbox.data_directory import LOG
from pillarbox.mailbox.store_checks import faults

PIECE_BYTES = 4 << 20
_PARTIAL = ".partial"
_TRIES = 50
_disk = RealDisk()

Progress = Callable[[int, int], None]


class BackupError(MailboxError):
    """The store could not be copied; there is no backup."""


class _Changed(Exception):
    """A listed file was dropped or replaced before it was copied."""


def backup(files: Files, directory: str, progress: Progress = lambda done, total: None) -> int:
    """Copy a store into a new directory; returns the number of bytes."""
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
    """A copy in the making."""

    def __init__(self, files: Files, directory: str, progress: Progress) -> None:
        self._files, self._directory, self._progress = files, directory, progress
        self._log = LogDirectory(_disk, f"{directory}/{LOG}")
        self._whole: dict[str, int] = {}  # sealed segments that are copied, with their sizes
        self._end = 0  # the index after the last record that was copied

    def make(self) -> int:
        for _ in range(_TRIES):
            listing = self._files.listing()
            try:
                return self._copy(listing)
            except _Changed:
                continue  # what is copied of sealed segments remains: the rest gets shorter
        raise BackupError(
            f"the store dropped files before they were copied, {_TRIES} times in a row; try again"
            " when it is less busy, or from a machine that is closer to it"
        )

    def _copy(self, listing: StoreListing) -> int:
        total = 0
        self._whole = {name: self._whole[name] for name in listing.segments if name in self._whole}
        for name in self._log.segment_names():
            if name not in self._whole:  # dropped since, or copied in part
                self._log.unlink(name)
        for number, name in enumerate(listing.segments):
            self._progress(number, len(listing.segments))
            following = listing.segments[number + 1 : number + 2]
            total += self._whole.get(name) or self._segment(name, following, listing)
        total += self._snapshot(listing)
        for name, content in listing.small.items():
            make_directory(_disk, os.path.dirname(f"{self._directory}/{name}"))
            total += self._write(name, [content])
        self._confirm()
        self._log.sync()
        _disk.sync_directory(self._directory)
        self._check_together(listing)
        return total

    def _segment(self, name: str, following: list[str], listing: StoreListing) -> int:
        """Copy one segment, as far as its frames are valid; returns its size."""
        size = self._fetch(name, f"{LOG}/{name}")
        segment = load_segment(self._log, name)
        if segment is None:
            raise self._damaged(name, "its header block fails its checksum")
        wrong = why_not_named(segment)
        if wrong is not None:
            raise self._damaged(name, wrong)
        image = self._log.map(name)
        found = scan(image, name, segment.header)
        wanted = base_of_name(following[0]) if following else listing.confirmed
        self._end = end = found.end_index
        if end < wanted or (following and end != wanted):
            raise self._damaged(name, f"its records end at {end}, not at {wanted}")
        if not found.sealed and not listing.confirmed:  # nobody writes to it
            proof = evidence_of_damage(valid_frames(image, segment.header, found.end_offset), end)
            if proof is not None:
                what = f"the frame at byte {found.end_offset}, before valid ones, is not valid"
                raise self._damaged(name, what)
        if not found.sealed:  # still written to: what follows may be half a frame
            size = found.end_offset
            with self._log.opened(name, write=True) as handle:
                _disk.truncate(handle, size)
                sync(_disk, handle)
        elif following:
            self._whole[name] = size
        return size

    def _damaged(self, name: str, what: str) -> Exception:
        """Why a segment can't be used: it was dropped while it was copied, or it is damaged."""
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
        """All that was copied is on disk now, whatever the durability of the store: note that."""
        confirmed = ConfirmedIndex(self._log, write=True)
        confirmed.set(self._end)
        confirmed.close()
        with self._log.opened(CONFIRMED_FILE, write=True) as handle:
            sync(_disk, handle)

    def _check_together(self, listing: StoreListing) -> None:
        if not listing.segments:
            return
        state = read_snapshot(_disk, self._directory)
        with LogReader(self._log.path, _disk) as log:
            known = log.log_id.hex(), log.first_index, log.end_index
        for fault in faults(_disk, self._directory, state, *known):
            raise BackupError(f"{fault.file} of the store {fault.what}; nothing was copied")

    def _fetch(self, name: str, to: str) -> int:
        """Copy a file in pieces; returns its size."""

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
