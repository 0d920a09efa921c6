"""Files by name below one location: in a directory, an object store, or HDFS.

What is written is durable when the call returns, and `create` never replaces: that is what
commits and claims are made of.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pillarbox.extras import extra
from pillarbox.spark.errors import StorageError
from pillarbox.spark.hdfs import HdfsFiles
from pillarbox.spark.location import is_remote_store
from pillarbox.spark.remote_store import Options, is_plain_http, options_of

_RETRIES = {"max_retries": 4, "retry_timeout": datetime.timedelta(seconds=30)}


class Files(Protocol):
    """Files by their names below one location. A missing one is a FileNotFoundError."""

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

    def writing(self, name: str) -> contextlib.AbstractContextManager[Any]:
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


class RemoteFiles(Files, Protocol):
    """Files that other machines have, too."""

    def check(self) -> None:
        """Raise a StorageError that says what to do if the store can't be read."""

    def clock_ahead_seconds(self, name: str) -> float:
        """How far the clock of this machine is ahead of the store's, after writing a file."""


def files_at(location: str, options: Options | None = None) -> Files:
    remote = is_remote_store(location)
    return remote_files_at(location, options) if remote else LocalFiles(location)


def remote_files_at(location: str, options: Options | None = None) -> RemoteFiles:
    if location.startswith("hdfs://"):
        return HdfsFiles(location)
    return ObjectFiles(location, options_of(location) if options is None else options)


@dataclass(frozen=True)
class LocalFiles:
    """Files of a directory."""

    root: str

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def read(self, name: str) -> bytes:
        return Path(self._path(name)).read_bytes()

    def size(self, name: str) -> int:
        return os.stat(self._path(name)).st_size

    def open(self, name: str) -> Any:
        return self._path(name)

    def names(self, folder: str = "") -> list[str]:
        try:
            return sorted(os.listdir(self._path(folder)))
        except FileNotFoundError:
            return []

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not os.path.exists(self._path(name))]

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        os.replace(self._temporary(name, data, durable=durable), self._path(name))
        if durable:
            _sync(os.path.dirname(self._path(name)))

    def create(self, name: str, data: bytes) -> bool:
        temporary = self._temporary(name, data)
        try:
            os.link(temporary, self._path(name))
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        _sync(os.path.dirname(self._path(name)))
        return True

    def _temporary(self, name: str, data: bytes, *, durable: bool = True) -> str:
        temporary = f"{self._path(name)}.{uuid.uuid4().hex}"
        Path(temporary).write_bytes(data)
        if durable:
            _sync(temporary)
        return temporary

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        yield self._path(name)
        _sync(self._path(name))
        _sync(os.path.dirname(self._path(name)))

    def remove(self, name: str) -> None:
        path = self._path(name)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            self.remove_files([name])

    def move(self, name: str, to: str) -> None:
        if os.path.exists(self._path(name)):
            os.rename(self._path(name), self._path(to))
            _sync(os.path.dirname(self._path(to)))

    def remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(name))

    def sync(self, *names: str) -> None:
        for name in names:
            _sync(self._path(name))

    def sync_all(self, folder: str) -> None:
        for name in self.names(folder):
            with contextlib.suppress(FileNotFoundError):
                _sync(f"{self._path(folder)}/{name}")
        _sync(self._path(folder))
        _sync(os.path.dirname(self._path(folder)))


@dataclass(frozen=True)
class ObjectFiles:
    """Files of an object store. A request that was answered is on disk."""

    location: str
    options: Options = field(repr=False)

    @property
    def _store(self) -> Any:
        return _store(self.location, tuple(sorted(self.options.items())))

    def read(self, name: str) -> bytes:
        with self._errors():
            return bytes(self._store.get(name).bytes())

    def size(self, name: str) -> int:
        with self._errors():
            return int(self._store.head(name)["size"])

    def open(self, name: str) -> Any:
        return _Object(self._store, name, self.size(name))

    def names(self, folder: str = "") -> list[str]:
        with self._errors():
            found = self._store.list_with_delimiter(folder or None)
        paths = [each["path"] for each in found["objects"]] + list(found["common_prefixes"])
        # Hadoop marks a folder with an empty object of its name.
        below = [path.rstrip("/") for path in paths if path.rstrip("/") != folder]
        return sorted(path.rpartition("/")[2] for path in below)

    def missing(self, names: Sequence[str]) -> list[str]:
        there = set(self._below()) if names else set()
        return [name for name in names if name not in there]

    def _below(self, folder: str | None = None) -> list[str]:
        with self._errors():
            return [each["path"] for each in self._store.list(folder).collect()]

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        with self._errors():
            self._store.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - behind an extra

        try:
            with self._errors():
                self._store.put(name, data, mode="create")
        except AlreadyExistsError:
            # Of a request whose answer was lost, the client hears that the file is there.
            return self.read(name) == data
        return True

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - behind an extra

        written = pa.BufferOutputStream()
        yield written
        self.write(name, memoryview(written.getvalue()).tobytes())

    def remove(self, name: str) -> None:
        self.remove_files([*self._below(f"{name}/"), name])

    def move(self, name: str, to: str) -> None:
        for each in self._below(f"{name}/"):
            # Hadoop marks folders with empty objects whose names only it can write; they stay.
            with contextlib.suppress(FileNotFoundError), self._errors():
                self._store.rename(each, f"{to}/{each.removeprefix(f'{name}/')}")

    def remove_files(self, names: Iterable[str]) -> None:
        if found := list(names):
            with self._errors():
                self._store.delete(found)

    def sync(self, *names: str) -> None:
        """Nothing to do."""

    def sync_all(self, folder: str) -> None:
        """Nothing to do."""

    def check(self) -> None:
        try:
            self.names()
        except OSError as error:
            raise StorageError(str(error)) from error

    def clock_ahead_seconds(self, name: str) -> float:
        with self._errors():
            written = self._store.head(name)["last_modified"]
        return float((datetime.datetime.now(datetime.UTC) - written).total_seconds())

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Say what to do about an error: a StorageError if trying again can't help."""
        from obstore.exceptions import AlreadyExistsError, BaseError  # noqa: PLC0415 - see above

        try:
            yield
        except AlreadyExistsError:
            raise
        except (OSError, BaseError) as error:
            if isinstance(error, FileNotFoundError) and not _NO_BUCKET.search(str(error)):
                raise
            said = str(error).splitlines()[0][:300]
            for raised, advice in ((StorageError, _PERMANENT), (OSError, _TEMPORARY)):
                for words, what in advice.items():
                    if words in str(error):
                        raise raised(f"{self.location} can't be used: {what} ({said})") from error
            raise OSError(f"{self.location} can't be used: {said}") from error


class _Object(io.RawIOBase):
    """An object as a file to read, a request for each part. (That of `obstore` is none that
    pyarrow knows: it has no `closed`.)"""

    def __init__(self, store: Any, name: str, size: int) -> None:
        super().__init__()
        self._store, self._name, self._size, self._at = store, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        from_where = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = from_where + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        found = bytes(self._store.get_range(self._name, start=self._at, end=end))
        self._at = end
        return found


@functools.lru_cache(maxsize=64)
def _store(location: str, options: tuple[tuple[str, str], ...]) -> Any:
    with extra("spark", f"a pipeline at {location}"):
        import obstore.store  # noqa: PLC0415 - behind an extra
    from_url: Any = obstore.store.from_url
    return from_url(
        location.replace("s3a://", "s3://", 1),
        config=dict(options),
        client_options={"allow_http": is_plain_http(dict(options)) == "true"},
        retry_config=_RETRIES,
    )


_REFUSED = (
    "the store refused the credentials; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and"
    " AWS_SESSION_TOKEN, and what they are allowed to do"
)
_UNREACHABLE = (
    "the store can't be reached, or there are no credentials for it; check AWS_REGION,"
    " AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_SKEWED = "the clocks of this machine and of the store are too far apart; set this one"
_NO_BUCKET = re.compile("NoSuchBucket|NoSuchContainer")
#: What to do about an error in which this stands.
_PERMANENT = {
    "NoSuchBucket": "there is no such bucket; create it first",
    "NoSuchContainer": "there is no such container; create it first",
    "RequestTimeTooSkewed": _SKEWED,
    "InvalidAccessKeyId": _REFUSED,
    "SignatureDoesNotMatch": _REFUSED,
    "403 Forbidden": _REFUSED,
    "401 Unauthorized": _REFUSED,
}
_TEMPORARY = {
    "onnect": _UNREACHABLE,
    "timed out": _UNREACHABLE,
    "credentials": _UNREACHABLE,
}


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
