"""Files below one location: in a directory, an object store, or HDFS.

Writes are durable when the call returns, and `create` never replaces a file. Commits and claims
rely on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pillarbox.spark.hdfs_files import HdfsFiles
from pillarbox.spark.local_files import LocalFiles
from pillarbox.spark.location import is_remote_store
from pillarbox.spark.object_files import ObjectFiles
from pillarbox.spark.remote_store import Options, options_of


class Files(Protocol):
    """Files by name below one location. Reading a missing file raises FileNotFoundError."""

    @property
    def location(self) -> str: ...
    def read(self, name: str) -> bytes: ...
    def size(self, name: str) -> int: ...
    def open(self, name: str) -> Any:
        """Return the file in a form that pyarrow can read."""

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names in a folder; empty if there is no such folder."""

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the files that do not exist."""

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write or replace a file atomically."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file; return False if there is one already."""

    def writing(self, name: str) -> AbstractContextManager[Any]:
        """Yield a new file in a form that pyarrow can write to."""

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it exists."""

    def move(self, name: str, to: str) -> None:
        """Rename a folder. Repeating an interrupted move completes it."""

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove files, if they exist."""

    def sync(self, *names: str) -> None:
        """Sync files or folders that others wrote to disk."""

    def sync_all(self, folder: str) -> None:
        """Sync a folder and all files in it to disk."""


def files_at(location: str, options: Options | None = None) -> Files:
    remote = is_remote_store(location)
    return remote_files_at(location, options) if remote else LocalFiles(location)


def remote_files_at(location: str, options: Options | None = None) -> ObjectFiles | HdfsFiles:
    if location.startswith("hdfs://"):
        return HdfsFiles(location)
    return ObjectFiles(location, options_of(location) if options is None else options)
