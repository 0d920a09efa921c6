"""Files in a local directory, synced to disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LocalFiles:
    """Files in a local directory."""

    location: str

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}" if name else self.location

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


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
