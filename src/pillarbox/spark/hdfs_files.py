"""Files on HDFS, through `hdfs-native`, which needs no Java.

A file is written under a temporary name, synced on its datanodes and then renamed. The rename is
atomic, and fails if the name is taken.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pillarbox.extras import extra
from pillarbox.spark.remote_files import RemoteFiles, StoreUnavailableError

#: Environment variables that determine the client's user and the namenodes.
_VARIABLES = ("HADOOP_USER_NAME", "HADOOP_CONF_DIR", "HADOOP_HOME")
_RETRY_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
#: Give up after about 20 seconds, not the default three minutes, unless Hadoop is configured.
_ATTEMPTS = {"dfs.client.failover.max.attempts": "4"}


@dataclass(frozen=True)
class HdfsFiles(RemoteFiles):
    """Files on HDFS. Names that begin with a dot are incomplete files.

    A closed file is on its datanodes, which sync it if they are configured to.
    """

    @property
    def _client(self) -> Any:
        with self._errors():
            return _client(urlsplit(self.location).netloc, *map(os.environ.get, _VARIABLES))

    def _path(self, name: str) -> str:
        return f"{urlsplit(self.location).path}/{name}".rstrip("/") or "/"

    def read(self, name: str) -> bytes:
        with self._errors():
            return bytes(self._client.read(self._path(name)).read())

    def size(self, name: str) -> int:
        with self._errors():
            return int(self._client.get_file_info(self._path(name)).length)

    def open(self, name: str) -> Any:
        with self._errors():
            return self._client.read(self._path(name))

    def names(self, folder: str = "") -> list[str]:
        names = (path.rpartition("/")[2] for path in self._list(folder))
        return sorted(name for name in names if not name.startswith("."))

    def missing(self, names: Sequence[str]) -> list[str]:
        existing = set(self._list(recursive=True)) if names else set()
        return [name for name in names if self._path(name) not in existing]

    def _list(self, folder: str = "", *, recursive: bool = False) -> list[str]:
        with self._errors():
            try:
                return [x.path for x in self._client.list_status(self._path(folder), recursive)]
            except FileNotFoundError:
                return []

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._rename(self._temporary(name, data, durable=durable), name, data, overwrite=True)

    def create(self, name: str, data: bytes) -> bool:
        temporary = self._temporary(name, data)
        if self._rename(temporary, name, data, overwrite=False):
            return True
        self.remove(temporary)
        return False

    def _rename(self, temporary: str, name: str, data: bytes, *, overwrite: bool) -> bool:
        """Rename a temporary file; return False if the name is taken."""
        paths = self._path(temporary), self._path(name)
        try:
            self._retry(lambda: self._client.rename(*paths, overwrite))
        except (FileExistsError, FileNotFoundError):
            # Also raised on a retry, if the first rename succeeded and its response was lost.
            return self.read(name) == data
        return True

    def _temporary(self, name: str, data: bytes, *, durable: bool = True) -> str:
        folder, slash, last = name.rpartition("/")
        temporary = f"{folder}{slash}.{last}.{uuid.uuid4().hex}"

        options = hdfs_native().WriteOptions(overwrite=True)

        def put() -> None:
            file = self._client.create(self._path(temporary), options)
            file.write(data)
            if durable:
                file.hsync()
            file.close()

        self._retry(put)
        return temporary

    def remove(self, name: str) -> None:
        self._retry(lambda: self._client.delete(self._path(name), recursive=True))

    def move(self, name: str, to: str) -> None:
        def move() -> None:
            self._client.get_file_info(self._path(name))
            self._client.mkdirs(self._path(to).rpartition("/")[0], create_parent=True)
            self._client.rename(self._path(name), self._path(to))

        with contextlib.suppress(FileNotFoundError):
            self._retry(move)

    def remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            self.remove(name)

    def written_at(self, name: str) -> float:
        with self._errors():
            return float(self._client.get_file_info(self._path(name)).modification_time) / 1000

    def _retry(self, change: Callable[[], Any]) -> None:
        """Make a change; retry if the connection is lost, so the change may be made twice.

        The client itself retries only reads.
        """
        deadline = time.monotonic() + _RETRY_SECONDS
        with self._errors():
            while True:
                try:
                    change()
                    return
                except (FileExistsError, FileNotFoundError):
                    raise
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate errors to ones with advice: StorageError if a retry can't help.

        The client raises RuntimeError for most errors of the namenode.
        """
        try:
            yield
        except (FileNotFoundError, FileExistsError, StoreUnavailableError):
            raise
        except (OSError, RuntimeError) as error:
            message = str(error).replace("\\n", "\n").partition("\n")[0]
            raise self._with_advice(message, _PERMANENT, _TEMPORARY) from error


@functools.lru_cache(maxsize=64)
def _client(authority: str, *environment: str | None) -> Any:
    _, *configured = environment
    return hdfs_native().Client(f"hdfs://{authority}", {} if any(configured) else _ATTEMPTS)


def hdfs_native() -> Any:
    with extra("hdfs", "a pipeline on HDFS"):
        import hdfs_native  # noqa: PLC0415 - behind an extra
    return hdfs_native


_NO_NAMENODE = (
    "the URL names no namenode; give its port, as in hdfs://namenode:8020/shop, or set"
    " HADOOP_CONF_DIR to the directory of the hdfs-site.xml that describes the nameservice"
)
#: Advice for errors whose message contains this text.
_PERMANENT = {
    "No NameNode hosts": _NO_NAMENODE,
    "No fs.defaultFS": _NO_NAMENODE,
    "AccessControlException": (
        "permission denied; change the owner or the mode of the directory, or set HADOOP_USER_NAME"
        " to a user who may use it"
    ),
}
_TEMPORARY = {
    "SafeModeException": "the namenode is in safe mode; wait until it leaves it",
    "onnection": "the namenode can't be reached; check that it is running, and its host and port",
    "lookup": "the namenode can't be found; check its host name",
}
