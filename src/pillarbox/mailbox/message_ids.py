"""Message ids: UUIDs in the form of version 4 that encode the store's id and the message's key.

Nothing is stored or looked up: an id is computed from a key, and the key from an id. A message
keeps its key within its store, so dead-lettering and redriving keep the message id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from pillarbox.core import journal
from pillarbox.mailbox.snapshot import StoreState

LOW_BITS: Final = 48  # low bits of the key: the last part of the id
VARIANT: Final = 1 << 63  # sets the UUID variant in the fourth part
LOW: Final = (1 << LOW_BITS) - 1
ABOVE: Final = 1 << LOW_BITS  # a leading digit, so that hex() keeps the zeros
#: The kinds of entries that carry names.
NAMING: Final = (journal.IDENTITY, journal.DECLARED)

_ENDINGS: Final = [f"{number:02x}" for number in range(1 << 8)]


class MessageIds(dict[int, str]):
    """The first parts of a store's message ids, by the high bits of the key.

    The id of a key is `ids[key >> LOW_BITS] + hex(key & LOW | ABOVE)[3:]`; the hot path inlines it.
    """

    def __init__(self, prefix: str) -> None:
        """Set the prefix from the store's id, of which the first 15 hexadecimal digits are used."""
        self.store_part = f"{prefix[:8]}-{prefix[8:12]}-4{prefix[12:15]}-"

    def __missing__(self, high: int) -> str:
        self.clear()  # each high part covers six days, so few are in use at a time
        self[high] = f"{self.store_part}{high | VARIANT >> LOW_BITS:x}-"
        return self[high]

    def of(self, key: int) -> str:
        return self[key >> LOW_BITS] + hex(key & LOW | ABOVE)[3:]

    def of_all(self, keys: Sequence[int]) -> list[str]:
        """Return the ids of a batch; consecutive keys differ only in the last digits."""
        if len(keys) == 1:
            return [self[keys[0] >> LOW_BITS] + hex(keys[0] & LOW | ABOVE)[3:]]
        if not isinstance(keys, range):
            return list(map(self.of, keys))
        ids: list[str] = []
        start = keys.start
        while start < keys.stop:
            low = start % len(_ENDINGS)
            count = min(keys.stop - start, len(_ENDINGS) - low)
            head = self.of(start)[:-2]
            ids += [head + ending for ending in _ENDINGS[low : low + count]]
            start += count
        return ids

    def key_of(self, message_id: str) -> int | None:
        """Return the key of a message id, or None if it is not an id of this store."""
        try:
            key = int(message_id[19:23] + message_id[24:], 16) ^ VARIANT
        except ValueError:
            return None
        return key if key >= 0 and self.of(key) == message_id else None  # canonical form only


@dataclass(slots=True)
class Names:
    """Queue names by number, and the prefix of message ids, for tools that read only the log."""

    prefix: str | None = None
    queues: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, state: StoreState | None) -> Names:
        """Return the names in a snapshot."""
        if state is None:
            return cls()
        return cls(state.prefix, {each.number: each.name for each in state.queues})

    def learn(self, entry: journal.Entry) -> None:
        if entry.kind == journal.IDENTITY:
            self.prefix = entry.details[0]
        elif entry.kind == journal.DECLARED:
            self.queues[entry.queue] = entry.details[0]

    def learn_from(self, entries: Iterable[bytes]) -> None:
        for data in entries:
            if data[0] in NAMING:
                self.learn(journal.decode(data))

    def queue(self, number: int) -> str:
        return self.queues.get(number, f"#{number}")

    def message_id(self, key: int) -> str:
        return _ids(self.prefix).of(key) if self.prefix else f"?-{key}"


_ids = lru_cache(MessageIds)
