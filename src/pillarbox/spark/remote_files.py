"""Files that other machines have, too: what an object store and HDFS have in common.

A request that was answered is durable, so there is nothing to sync.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pillarbox.spark.errors import StorageError


class StoreUnavailableError(OSError):
    """The store can't be used now; trying again may help."""


@dataclass(frozen=True)
class RemoteFiles(ABC):
    """What the classes that are `Files` of such a store inherit."""

    location: str

    @abstractmethod
    def names(self, folder: str = "") -> list[str]: ...
    @abstractmethod
    def write(self, name: str, data: bytes, *, durable: bool = True) -> None: ...

    @abstractmethod
    def written_at(self, name: str) -> float:
        """When a file was written by the clock of the store, in seconds since 1970."""

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - behind an extra

        written = pa.BufferOutputStream()
        yield written
        self.write(name, memoryview(written.getvalue()).tobytes())

    def sync(self, *names: str) -> None:  # noqa: B027 - there is nothing to do
        pass

    def sync_all(self, folder: str) -> None:  # noqa: B027 - see above
        pass

    def check(self) -> None:
        """Raise a StorageError that says what to do if the store can't be read."""
        try:
            self.names()
        except OSError as error:
            raise StorageError(str(error)) from error

    def _with_advice(
        self, said: str, permanent: Mapping[str, str], temporary: Mapping[str, str]
    ) -> Exception:
        """An error with what to do about it, by the words in what the store or its client said."""
        first_line = said.partition("\n")[0][:300]
        for kind, advice in ((StorageError, permanent), (StoreUnavailableError, temporary)):
            for words, what in advice.items():
                if words in said:
                    return kind(f"{self.location} can't be used: {what} ({first_line})")
        return StoreUnavailableError(f"{self.location} can't be used: {first_line}")
