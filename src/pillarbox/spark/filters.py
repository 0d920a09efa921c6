"""Filters that Spark pushes down: on index, time, queue and kind they make a read smaller.

A filter that is taken whole is not asked again by Spark. One on a time only moves the range of
indices, and Spark still asks it of each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pillarbox.spark.history import History

_NS = 1000
_NEVER_NULL = frozenset(("partition", "index", "time"))


@dataclass
class Narrowing:
    """What the filters leave of a read."""

    start: int = 0
    end: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    queues: frozenset[str] | None = None
    kinds: frozenset[str] | None = None

    def take(self, filter: Filter, *, mailbox: bool) -> bool:
        """Use a filter; True if nobody has to ask it again."""
        name = ".".join(getattr(filter, "attribute", ()))
        if isinstance(filter, IsNotNull):
            return name in _NEVER_NULL
        value: Any = getattr(filter, "value", None)
        if name == "index" and type(value) is int:
            return self._take_index(filter, value)
        if name in ("queue", "kind") and mailbox:
            return self._take_words(name, filter, value)
        if name == "time" or (name == "enqueued_at" and not mailbox):
            self._take_time(filter, value)
        return False

    def range(self, history: History, start: int, end: int) -> tuple[int, int]:
        """The indices that are left between two."""
        low, high = max(start, self.start), end if self.end is None else min(end, self.end)
        if self.since_ns is not None:
            low = max(low, history.index_at_time(self.since_ns))
        if self.until_ns is not None:
            high = min(high, history.index_at_time(self.until_ns))
        return low, max(low, high)

    def _take_index(self, filter: Filter, value: int) -> bool:
        low, high = 0, None
        if isinstance(filter, EqualTo):
            low, high = value, value + 1
        elif isinstance(filter, GreaterThan):
            low = value + 1
        elif isinstance(filter, GreaterThanOrEqual):
            low = value
        elif isinstance(filter, LessThan):
            high = value
        elif isinstance(filter, LessThanOrEqual):
            high = value + 1
        else:
            return False
        self.start = max(self.start, low)
        if high is not None:
            self.end = high if self.end is None else min(self.end, high)
        return True

    def _take_words(self, name: str, filter: Filter, value: Any) -> bool:
        if isinstance(filter, EqualTo):
            words = frozenset((value,))
        elif isinstance(filter, In):
            words = frozenset(value)
        else:
            return False
        known = self.queues if name == "queue" else self.kinds
        words = words if known is None else words & known
        if name == "queue":
            self.queues = words
        else:
            self.kinds = words
        return True

    def _take_time(self, filter: Filter, value: Any) -> None:
        """Rows have microseconds, frames nanoseconds: the range is widened to whole ones."""
        if not isinstance(value, datetime):
            return
        when = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        microseconds = round(when.timestamp() * 1_000_000)
        if isinstance(filter, GreaterThan | GreaterThanOrEqual | EqualTo):
            since = microseconds * _NS
            self.since_ns = since if self.since_ns is None else max(self.since_ns, since)
        if isinstance(filter, LessThan | LessThanOrEqual | EqualTo):
            until = (microseconds + 1) * _NS
            self.until_ns = until if self.until_ns is None else min(self.until_ns, until)
