"""The Lua scripts of a queue on Redis; the header of each file documents keys and arguments.

A script lists its includes (`--@include line`). They are assembled here, each once and in order,
and the server identifies a script by the SHA-1 of the result.
"""

from __future__ import annotations

import hashlib
import re
import threading
from importlib.resources import files
from typing import NamedTuple

from pillarbox.mailbox.redis.resp import part

_INCLUDE = re.compile(r"^--@include (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--(?!@).*\n|\s+-- .*$", re.MULTILINE)


class Script(NamedTuple):
    """An assembled script."""

    name: str
    sha: bytes
    text: bytes
    by_sha: bytes  # encoded EVALSHA and SHA-1


def script_of(name: str, text: bytes) -> Script:
    sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    return Script(name, sha, text, part((b"EVALSHA", sha)))


class Scripts(dict[str, Script]):
    """Scripts by name, assembled on first use. Tests replace some includes."""

    def __init__(self, **pieces: str) -> None:
        super().__init__()
        self._pieces = pieces
        self._lock = threading.RLock()  # a signal handler may interrupt

    def __missing__(self, name: str) -> Script:
        with self._lock:
            text = _INCLUDE.sub(lambda found: self._piece(found[1]), _read(name))
            self[name] = script = script_of(name, text.encode())
        return script

    def replace(self, **pieces: str) -> None:
        """Replace these includes in all scripts."""
        with self._lock:
            self._pieces |= pieces
            self.clear()

    def _piece(self, name: str) -> str:
        return self._pieces.get(name) or _COMMENT.sub("", _read(name))


def _read(name: str) -> str:
    return files(__package__).joinpath(f"{name}.lua").read_text()


SCRIPTS = Scripts()
