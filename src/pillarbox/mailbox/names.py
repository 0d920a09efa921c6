"""Queue names and message ids for tools that read a store's log without opening the store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from pillarbox.core import journal
from pillarbox.mailbox.message_ids import MessageIds
from pillarbox.mailbox.snapshot import StoreState

#: The kinds of entries that carry names.
NAMING = (journal.IDENTITY, journal.DECLARED)


@dataclass(slots=True)
class Names:
    """Queue names by queue number, and the prefix of message ids."""

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
