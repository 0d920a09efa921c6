"""Message ids: UUIDs, version 4 in form, that hold the store's identity and the message's key.

Nothing has to be stored or looked up: an id is made from a key, and gives it back. A message
keeps its key wherever it goes within its store, so dead letters and redrives keep their id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LOW_BITS: Final = 48  # of the key are the last part of the id
VARIANT: Final = 1 << 63  # what makes the highest digits of a key the fourth part of a UUID
LOW: Final = (1 << LOW_BITS) - 1
ABOVE: Final = 1 << LOW_BITS  # a digit before them, which keeps their zeros
_ENDINGS: Final = [f"{number:04x}" for number in range(1 << 16)]


class MessageIds(dict[int, str]):
    """What ids begin with, by the high bits of their key; for one store.

    The id of a key is `ids[key >> LOW_BITS] + hex(key & LOW | ABOVE)[3:]`; the hot path says so
    itself.
    """

    def __init__(self, prefix: str) -> None:
        """`prefix` is the identity of the store: its first 15 hexadecimal digits count."""
        self.store_part = f"{prefix[:8]}-{prefix[8:12]}-4{prefix[12:15]}-"

    def __missing__(self, high: int) -> str:
        self.clear()  # a high part is good for six days, so there are few of them at a time
        self[high] = f"{self.store_part}{high | VARIANT >> LOW_BITS:x}-"
        return self[high]

    def of(self, key: int) -> str:
        return self[key >> LOW_BITS] + hex(key & LOW | ABOVE)[3:]

    def of_all(self, keys: Sequence[int]) -> list[str]:
        """The ids of a batch; those of keys in a row differ in their last digits only."""
        if len(keys) == 1:
            return [self[keys[0] >> LOW_BITS] + hex(keys[0] & LOW | ABOVE)[3:]]
        if not isinstance(keys, range):
            return list(map(self.of, keys))
        ids: list[str] = []
        start = keys.start
        while start < keys.stop:
            low = start % len(_ENDINGS)
            count = min(keys.stop - start, len(_ENDINGS) - low)
            head = self.of(start)[:-4]
            ids += [head + ending for ending in _ENDINGS[low : low + count]]
            start += count
        return ids

    def key_of(self, message_id: str) -> int | None:
        """The key behind an id of this store."""
        try:
            key = int(message_id[19:23] + message_id[24:], 16) ^ VARIANT
        except ValueError:
            return None
        return key if key >= 0 and self.of(key) == message_id else None  # one spelling only
