"""Files by name below one location: in a directory, an object store, or HDFS.

What is written is durable when the call returns, and `create` never replaces: that is what
commits and claims are made of.
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
    """Files by their names below one location. A missing one is a FileNotFoundError."""

    @property
    def location(self) -> str: ...
    def read(self, name: str) -> bytes: ...
    def size(self, name: str) -> int: ...
    def open(self, name: str) -> Any:
        """The file, for pyarrow to read."""

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, in order; none if it is not there."""

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of these files that are not there."""

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file, or replace it; readers see the old one or the new one."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one; False if there is."""

    def writing(self, name: str) -> AbstractContextManager[Any]:
        """A new file, for pyarrow to write."""

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""

    def move(self, name: str, to: str) -> None:
        """Give a folder another name. If that was interrupted, doing it again completes it."""

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove files, if they are there."""

    def sync(self, *names: str) -> None:
        """Have on disk what others wrote: files, and the folders that name them."""

    def sync_all(self, folder: str) -> None:
        """Have on disk what others wrote in a folder, and its name."""


def files_at(location: str, options: Options | None = None) -> Files:
    remote = is_remote_store(location)
    return remote_files_at(location, options) if remote else LocalFiles(location)


def remote_files_at(location: str, options: Options | None = None) -> ObjectFiles | HdfsFiles:
    if location.startswith("hdfs://"):
        return HdfsFiles(location)
    return ObjectFiles(location, options_of(location) if options is None else options)
