"""The state machine of a queue on Redis: Lua, in files whose headers document every key.

A script names the pieces it is made of (`--@include line`). They are put together here, each
once and in order, and known to the server by the SHA-1 of the whole.
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
    """A script as the server knows it."""

    name: str
    sha: bytes
    text: bytes
    by_sha: bytes  # the first words of its call


def script_of(name: str, text: bytes) -> Script:
    sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    return Script(name, sha, text, part((b"EVALSHA", sha)))


class Scripts(dict[str, Script]):
    """Scripts by name, made when they are first asked for. Tests put in pieces of their own."""

    def __init__(self, **pieces: str) -> None:
        super().__init__()
        self._pieces = pieces
        self._lock = threading.RLock()  # a signal handler may come in between

    def __missing__(self, name: str) -> Script:
        with self._lock:
            text = _INCLUDE.sub(lambda found: self._piece(found[1]), _read(name))
            self[name] = script = script_of(name, text.encode())
        return script

    def replace(self, **pieces: str) -> None:
        """From now on scripts have these pieces."""
        with self._lock:
            self._pieces |= pieces
            self.clear()

    def _piece(self, name: str) -> str:
        return self._pieces.get(name) or _COMMENT.sub("", _read(name))


def _read(name: str) -> str:
    return files(__package__).joinpath(f"{name}.lua").read_text()


SCRIPTS = Scripts()
