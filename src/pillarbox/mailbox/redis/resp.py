"""Encodes commands in RESP. The parts that a queue repeats, script name and keys, are cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Items = tuple[Any, ...]


def pack_in_python(items: Items) -> bytes:
    """Encode a command of bytes, text and numbers."""
    packed = [b"*%d\r\n" % len(items)]
    for item in items:
        data = item if isinstance(item, bytes) else str(item).encode()
        packed.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(packed)


pack: Callable[[Items], bytes] = pack_in_python
try:
    import hiredis
except ModuleNotFoundError:
    pass
else:
    pack = hiredis.pack_command


def part(items: Items) -> bytes:
    """Encode some arguments of a command, to be appended to others."""
    packed = pack(items)
    return packed[packed.index(b"\n") + 1 :]


class Keys:
    """The encoded keys of a queue's scripts, with their number in front."""

    __slots__ = ("_keys", "_packed")

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)
        self._packed: dict[int, bytes] = {}  # by the number of further keys

    def call(self, script: bytes, own_keys: int, words: list[Any]) -> bytes:
        """Encode the call of a script: EVALSHA, these keys, its own keys, and its arguments."""
        count = len(self._keys)
        keys = self._packed.get(own_keys)
        if keys is None:
            keys = self._packed[own_keys] = part((count + own_keys, *self._keys))
        rest = pack(tuple(words))
        number = b"*%d\r\n" % (3 + count + len(words))
        return b"".join((number, script, keys, rest[rest.index(b"\n") + 1 :]))
