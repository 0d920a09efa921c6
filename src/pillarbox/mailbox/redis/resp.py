"""Commands as bytes that the server reads (RESP). What a queue sends again and again, the name
of the script and all of the keys, is packed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Items = tuple[Any, ...]


def pack_in_python(items: Items) -> bytes:
    """A command of bytes, text and numbers."""
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
    """Some words of a command, to be put after others."""
    packed = pack(items)
    return packed[packed.index(b"\n") + 1 :]


class Keys:
    """The keys that scripts of one queue are given, with how many they are before them."""

    __slots__ = ("_keys", "_packed", "count")

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.count = len(keys)
        self._keys = tuple(keys)
        self._packed: dict[int, bytes] = {}

    def before(self, more: int) -> bytes:
        """Packed, where so many others follow."""
        packed = self._packed.get(more)
        if packed is None:
            packed = self._packed[more] = part((self.count + more, *self._keys))
        return packed


def script(head: bytes, keys: Keys, more: int, words: list[Any]) -> bytes:
    """The call of a script: `head` is its first two words, `words` begin with `more` keys."""
    count = b"*%d\r\n" % (3 + keys.count + len(words))
    return b"".join((count, head, keys.before(more), part(tuple(words))))
