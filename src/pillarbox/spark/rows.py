"""What a task reads, as columns that are made when they are asked for; and what of it is wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

Words = frozenset[str] | None  # None: all of them


class Rows(Protocol):
    """Some records, or events of a mailbox, in order."""

    def __len__(self) -> int: ...
    def column(self, name: str) -> Any:
        """An Arrow array, as long as there are rows; None if nothing is known of this."""


class LogRows:
    """Records of a log, which are bytes to it."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def column(self, name: str) -> Any:
        known = _OF_LOG.get(name)
        return self._batch.column(known) if known is not None else None


_OF_LOG = {"index": "index", "body": "record", "enqueued_at": "time", "time": "time"}


@dataclass(frozen=True)
class Wanted:
    """Which rows a read is about, and whether it can go on without those that are gone."""

    queues: Words = None
    kinds: Words = None
    fail_on_loss: bool = True

    def narrowed(self, queues: Words, kinds: Words) -> Wanted:
        """The same, for these queues and kinds only."""
        return replace(self, queues=_both(self.queues, queues), kinds=_both(self.kinds, kinds))


def _both(one: Words, other: Words) -> Words:
    if one is None or other is None:
        return other if one is None else one
    return one & other
