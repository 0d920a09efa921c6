"""Files of HDFS, through `hdfs-native`, which needs no Java.

A file gets its name when it is whole: it is written under another one, synced on its datanodes
and renamed, which the namenode does at once and only if the name is free.
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

#: By which a client knows who it is, and where the namenodes are.
_VARIABLES = ("HADOOP_USER_NAME", "HADOOP_CONF_DIR", "HADOOP_HOME")
_AGAIN_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
#: For some 20 seconds, unless there is a configuration of Hadoop; by default it is three minutes.
_ATTEMPTS = {"dfs.client.failover.max.attempts": "4"}


@dataclass(frozen=True)
class HdfsFiles(RemoteFiles):
    """Files of HDFS. Names that begin with a dot are those of files that are not whole yet.

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
        found = (path.rpartition("/")[2] for path in self._list(folder))
        return sorted(name for name in found if not name.startswith("."))

    def missing(self, names: Sequence[str]) -> list[str]:
        there = set(self._list(recursive=True)) if names else set()
        return [name for name in names if self._path(name) not in there]

    def _list(self, folder: str = "", *, recursive: bool = False) -> list[str]:
        with self._errors():
            try:
                return [x.path for x in self._client.list_status(self._path(folder), recursive)]
            except FileNotFoundError:
                return []

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._name(self._temporary(name, data, durable=durable), name, data, overwrite=True)

    def create(self, name: str, data: bytes) -> bool:
        temporary = self._temporary(name, data)
        if self._name(temporary, name, data, overwrite=False):
            return True
        self.remove(temporary)
        return False

    def _name(self, temporary: str, name: str, data: bytes, *, overwrite: bool) -> bool:
        """Give a file its name; False if another one has it."""
        paths = self._path(temporary), self._path(name)
        try:
            self._ask(lambda: self._client.rename(*paths, overwrite))
        except (FileExistsError, FileNotFoundError):
            # So it is also if the file has its name, and the answer was lost.
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

        self._ask(put)
        return temporary

    def remove(self, name: str) -> None:
        self._ask(lambda: self._client.delete(self._path(name), recursive=True))

    def move(self, name: str, to: str) -> None:
        def move() -> None:
            self._client.get_file_info(self._path(name))
            self._client.mkdirs(self._path(to).rpartition("/")[0], create_parent=True)
            self._client.rename(self._path(name), self._path(to))

        with contextlib.suppress(FileNotFoundError):
            self._ask(move)

    def remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            self.remove(name)

    def written_at(self, name: str) -> float:
        with self._errors():
            return float(self._client.get_file_info(self._path(name)).modification_time) / 1000

    def _ask(self, change: Callable[[], Any]) -> None:
        """Have something changed; a connection that was lost is no reason to give up.

        The client itself only reads again. What is changed here may be changed twice.
        """
        deadline = time.monotonic() + _AGAIN_SECONDS
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
        """Say what to do about an error: a StorageError if trying again can't help.

        The client raises a RuntimeError for most of what the namenode says.
        """
        try:
            yield
        except (FileNotFoundError, FileExistsError, StoreUnavailableError):
            raise
        except (OSError, RuntimeError) as error:
            said = str(error).replace("\\n", "\n").partition("\n")[0]
            raise self._with_advice(said, _PERMANENT, _TEMPORARY) from error


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
#: What to do about an error in which this stands.
_PERMANENT = {
    "No NameNode hosts": _NO_NAMENODE,
    "No fs.defaultFS": _NO_NAMENODE,
    "AccessControlException": (
        "permission denied; change the owner or the mode of the directory, or set HADOOP_USER_NAME"
        " to a user who may use it"
    ),
}
_TEMPORARY = {
    "SafeModeException": "the namenode is in safe mode; try again when it has left it",
    "onnection": "the namenode can't be reached; check that it is running, and its host and port",
    "lookup": "the namenode can't be found; check its host name",
}
