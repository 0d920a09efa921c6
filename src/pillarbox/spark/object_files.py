"""Files in an object store, through `obstore`."""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pillarbox.extras import extra
from pillarbox.spark.remote_files import RemoteFiles
from pillarbox.spark.remote_store import Options, is_plain_http

_RETRIES = {"max_retries": 4, "retry_timeout": datetime.timedelta(seconds=30)}


@dataclass(frozen=True)
class ObjectFiles(RemoteFiles):
    """Files in an object store. A write is durable when its request succeeds."""

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
            listing = self._store.list_with_delimiter(folder or None)
        paths = [each["path"] for each in listing["objects"]] + list(listing["common_prefixes"])
        # Hadoop marks a folder with an empty object of the same name.
        below = [path.rstrip("/") for path in paths if path.rstrip("/") != folder]
        return sorted(path.rpartition("/")[2] for path in below)

    def missing(self, names: Sequence[str]) -> list[str]:
        existing = set(self._below()) if names else set()
        return [name for name in names if name not in existing]

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
            # Also raised on a retry, if the first request succeeded and its response was lost.
            return self.read(name) == data
        return True

    def remove(self, name: str) -> None:
        self.remove_files([*self._below(f"{name}/"), name])

    def move(self, name: str, to: str) -> None:
        for each in self._below(f"{name}/"):
            # Hadoop marks folders with empty objects that only it can rename; leave them.
            with contextlib.suppress(FileNotFoundError), self._errors():
                self._store.rename(each, f"{to}/{each.removeprefix(f'{name}/')}")

    def remove_files(self, names: Iterable[str]) -> None:
        if paths := list(names):
            with self._errors():
                self._store.delete(paths)

    def written_at(self, name: str) -> float:
        with self._errors():
            return float(self._store.head(name)["last_modified"].timestamp())

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate errors to ones with advice: StorageError if a retry can't help."""
        with extra("spark", f"a pipeline at {self.location}"):
            from obstore.exceptions import AlreadyExistsError, BaseError  # noqa: PLC0415 - see above

        try:
            yield
        except AlreadyExistsError:
            raise
        except (OSError, BaseError) as error:
            if isinstance(error, FileNotFoundError) and not _NO_BUCKET.search(str(error)):
                raise
            raise self._with_advice(str(error), _PERMANENT, _TEMPORARY) from error


class _Object(io.RawIOBase):
    """An object as a readable file, with a request for each read.

    pyarrow does not accept the file class of `obstore`, which lacks `closed`.
    """

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
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = origin + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        data = bytes(self._store.get_range(self._name, start=self._at, end=end))
        self._at = end
        return data


@functools.lru_cache(maxsize=64)
def _store(location: str, options: tuple[tuple[str, str], ...]) -> Any:
    with extra("spark", f"a pipeline at {location}"):
        import obstore.store  # noqa: PLC0415 - behind an extra
    from_url: Any = obstore.store.from_url
    return from_url(
        location.replace("s3a://", "s3://", 1),
        config=dict(options),
        client_options={"allow_http": is_plain_http(dict(options))},
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
_SKEWED = "the clocks of this machine and of the store differ too much; set that of this machine"
_NO_BUCKET = re.compile("NoSuchBucket|NoSuchContainer")
#: Advice for errors whose message contains this text.
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
