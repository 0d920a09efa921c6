"""Saved positions: of named tailers, and pins that hold back retention.

Each is a small file that is replaced atomically. Retention never drops a record at or after the
lowest of them.
"""

from __future__ import annotations

import re
import zlib

from pillarbox.log.directory import LogDirectory
from pillarbox.log.disk import make_directory, read_file, replace_file
from pillarbox.log.errors import LogCorruptError, LogError

TAILERS = "tailers"
PINS = "pins"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SUFFIX = ".position"


class Positions:
    """Named positions of one kind in the directory of a log."""

    def __init__(self, directory: LogDirectory, kind: str) -> None:
        self._disk = directory.disk
        self._directory = directory.path_of(kind)

    def load(self, name: str) -> int | None:
        """Return the saved index; None if there is none of this name."""
        path = f"{self._directory}/{_checked(name)}{_SUFFIX}"
        try:
            raw = read_file(self._disk, path)
        except FileNotFoundError:
            return None
        text, _, check = raw.decode("ascii", "replace").strip().partition(" ")
        if not text.isdigit() or check != f"{zlib.crc32(text.encode()):08x}":
            raise LogCorruptError(path, f"the position of {name!r} fails its checksum")
        return int(text)

    def save(self, name: str, index: int) -> None:
        """Save a position durably."""
        _checked(name)
        text = str(index)
        content = f"{text} {zlib.crc32(text.encode()):08x}\n".encode()
        try:
            replace_file(self._disk, self._directory, name + _SUFFIX, content)
        except FileNotFoundError:
            make_directory(self._disk, self._directory)
            replace_file(self._disk, self._directory, name + _SUFFIX, content)

    def delete(self, name: str) -> None:
        try:
            self._disk.unlink(f"{self._directory}/{_checked(name)}{_SUFFIX}")
        except FileNotFoundError:
            return
        self._disk.sync_directory(self._directory)

    def all(self) -> dict[str, int]:
        """Return all saved positions by name."""
        try:
            files = self._disk.names(self._directory)
        except FileNotFoundError:
            return {}
        names = [file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX)]
        loaded = {name: self.load(name) for name in names}
        return {name: index for name, index in loaded.items() if index is not None}


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise LogError(
            f"{name!r} is not a valid name; use up to 128 letters, digits, '.', '_' and '-'"
        )
    return name
