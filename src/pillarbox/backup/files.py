"""The files of a store, read while its owner may be writing.

A store is a snapshot, the segments of a log, and some small files. A segment only grows, and is
immutable soon after another follows it. The snapshot is replaced atomically; only then does the
compactor drop segments that are no longer needed. So if the snapshot is the same before and after
listing the segments, the list has all the segments it needs. A listed file may be dropped before it
is read, or not be complete yet; then list the files again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from pillarbox.core.errors import MailboxStorageError
from pillarbox.log import LogError
from pillarbox.log.confirmed import confirmed_by_last_writer
from pillarbox.log.directory import LogDirectory, is_segment_name
from pillarbox.log.disk import RealDisk
from pillarbox.log.positions import PINS, TAILERS
from pillarbox.mailbox.broker.address import address_of
from pillarbox.mailbox.broker.channel import channels_to
from pillarbox.mailbox.broker.wire import ListFiles, Piece, ReadFile, StoreListing
from pillarbox.mailbox.data_directory import LOG, data_directory_in
from pillarbox.mailbox.store_files import SETTINGS_FILE, SNAPSHOT_FILE, TIME_FILE

SNAPSHOT_HEAD_BYTES = 12  # what identifies a snapshot: its magic number and checksum
_ATTEMPTS = 100


class Files(Protocol):
    """Reads the files of a store, from a directory or a broker."""

    def listing(self) -> StoreListing:
        """List the current files of the store."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read a part of a segment or the snapshot; raise FileNotFoundError if it was dropped."""


class StoreFiles:
    """The files of a store in a directory on this machine.

    A backup (`is_backup`) must contain all records that were copied to it.
    """

    def __init__(self, directory: str, *, is_backup: bool = False) -> None:
        self._is_backup = is_backup
        data = data_directory_in(directory)
        if data is None:
            raise LogError(f"there is no store in {directory}")
        if data.store is None:
            raise LogError(f"{directory} is a plain log; give the directory of a store")
        self.directory, self._data = data.store, data

    def listing(self) -> StoreListing:
        for _ in range(_ATTEMPTS):
            head = self._snapshot_head()
            confirmed = self._confirmed()  # before the segments, because a new one may start
            segments = self._data.segment_files()
            small = {name: content for name in self._small() if (content := self._content(name))}
            if head == self._snapshot_head():
                return StoreListing(head, segments, small, confirmed)
        raise MailboxStorageError(
            f"the snapshot of {self.directory} keeps being replaced; try again later"
        )

    def read(self, name: str, offset: int, size: int) -> bytes:
        if name != SNAPSHOT_FILE and not is_segment_name(name):
            raise LogError(f"{name!r} is neither a segment nor the snapshot")
        folder = self.directory if name == SNAPSHOT_FILE else self._data.log
        handle = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(handle, size, offset)
        finally:
            os.close(handle)

    def _snapshot_head(self) -> bytes:
        try:
            return self.read(SNAPSHOT_FILE, 0, SNAPSHOT_HEAD_BYTES)
        except FileNotFoundError:
            return b""

    def _small(self) -> list[str]:
        """Return the small files that are replaced atomically: settings, time, reader positions."""
        names = [SETTINGS_FILE, TIME_FILE]
        for folder in (f"{LOG}/{TAILERS}", f"{LOG}/{PINS}"):
            path = Path(self.directory, folder)
            if path.is_dir():
                names += [f"{folder}/{name}" for name in os.listdir(path) if name[0] != "."]
        return [name for name in names if not name.endswith(".tmp")]

    def _content(self, name: str) -> bytes:
        try:
            return Path(self.directory, name).read_bytes()
        except FileNotFoundError:
            return b""

    def _confirmed(self) -> int:
        """Return the index after the last confirmed record; 0 if there is no writer to ask."""
        if self._data.writer() is None and not self._is_backup:
            return 0
        return confirmed_by_last_writer(LogDirectory(RealDisk(), self._data.log))


class BrokerFiles:
    """The files of the store of a running broker, read over the native protocol.

    Requires a key with full access: the files contain all queues and the secret of receipt handles.
    """

    def __init__(self, url: str) -> None:
        self._channels = channels_to(address_of(url)[0])

    def listing(self) -> StoreListing:
        listing: StoreListing = self._channels.ask("", (ListFiles(),))[0].value
        return listing

    def read(self, name: str, offset: int, size: int) -> bytes:
        piece: Piece = self._channels.ask("", (ReadFile(name, offset, size),))[0].value
        if piece.data is None:
            raise FileNotFoundError(name)
        return piece.data
