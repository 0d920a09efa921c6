"""The common part of files in object stores and on HDFS.

A write is durable when its request succeeds, so there is nothing to sync.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pillarbox.spark.errors import StorageError


class StoreUnavailableError(OSError):
    """The store is temporarily unavailable; retrying may help."""


@dataclass(frozen=True)
class RemoteFiles(ABC):
    """The base of the `Files` classes for remote stores."""

    location: str

    @abstractmethod
    def names(self, folder: str = "") -> list[str]: ...
    @abstractmethod
    def write(self, name: str, data: bytes, *, durable: bool = True) -> None: ...

    @abstractmethod
    def written_at(self, name: str) -> float:
        """Return the time of the last write, by the store's clock, in seconds since 1970."""

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - behind an extra

        buffer = pa.BufferOutputStream()
        yield buffer
        self.write(name, memoryview(buffer.getvalue()).tobytes())

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
        self, message: str, permanent: Mapping[str, str], temporary: Mapping[str, str]
    ) -> Exception:
        """Return an error with advice, chosen by text in the store's error message."""
        first_line = message.partition("\n")[0][:300]
        for kind, advice in ((StorageError, permanent), (StoreUnavailableError, temporary)):
            for words, what in advice.items():
                if words in message:
                    return kind(f"{self.location} can't be used: {what} ({first_line})")
        return StoreUnavailableError(f"{self.location} can't be used: {first_line}")
