"""Events of a mailbox that came one by one, as columns: each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

_TIME = pa.timestamp("us", "UTC")
_TYPES: dict[str, Any] = {
    "index": pa.int64(),
    "time": _TIME,
    "kind": pa.string(),
    "id": pa.string(),
    "enqueued_at": _TIME,
    "body": pa.binary(),
    "priority": pa.int32(),
    "attributes": pa.map_(pa.string(), pa.string()),
    "details": pa.string(),
}
Values = Mapping[str, Callable[[Any], Any]]  # by column: its value in an event


class EventRows:
    """Events of one queue."""

    def __init__(self, events: Sequence[Any], queue: str, values: Values) -> None:
        self._events, self._queue, self._values = events, queue, values

    def __len__(self) -> int:
        return len(self._events)

    def column(self, name: str) -> Any:
        if name == "queue":
            return pa.repeat(pa.scalar(self._queue), len(self))
        return pa.array(map(self._values[name], self._events), _TYPES[name])
