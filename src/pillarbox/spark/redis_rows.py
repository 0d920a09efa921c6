"""Entries of a queue's stream on Redis as columns; `scripts/journal.lua` says what is in them."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from pillarbox.spark.rows import Words

SEQUENCE_BITS = 20
_ID_TIME_DIGITS = 14  # an id begins with its time: microseconds, in hexadecimal digits
_COLUMNS = frozenset((b"kind", b"id", b"time", b"body", b"attributes", b"priority"))
_TIME = pa.timestamp("us", "UTC")
_attributes = msgspec.json.Decoder(dict[str, str]).decode


def index_of(entry_id: bytes) -> int:
    """The index of an entry, from its id in the stream."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds) << SEQUENCE_BITS | int(sequence)


def time_ns_of(fields: list[bytes]) -> int:
    """When an entry was written."""
    return int(fields[fields.index(b"time") + 1]) * 1_000


class RedisRows:
    """Entries as they came, of the kinds that are wanted."""

    def __init__(self, entries: list[Any], queue: str, kinds: Words) -> None:
        pairs = [
            (entry_id, dict(zip(fields[::2], fields[1::2], strict=True)))
            for entry_id, fields in entries
        ]
        if kinds is not None:
            pairs = [pair for pair in pairs if pair[1][b"kind"].decode() in kinds]
        self._ids = [entry_id for entry_id, _ in pairs]
        self._entries = [fields for _, fields in pairs]
        self._queue = queue

    def __len__(self) -> int:
        return len(self._entries)

    def column(self, name: str) -> Any:
        columns: dict[str, Any] = {
            "index": lambda: pa.array([index_of(each) for each in self._ids], pa.int64()),
            "time": lambda: pa.array(map(int, self._field(b"time")), _TIME),
            "kind": lambda: self._text(b"kind"),
            "queue": lambda: pa.repeat(pa.scalar(self._queue), len(self)),
            "id": lambda: self._text(b"id"),
            "enqueued_at": lambda: pa.array(map(_sent_at, self._field(b"id")), _TIME),
            "body": lambda: pa.array(self._field(b"body"), pa.binary()),
            "priority": lambda: pa.array(map(_number, self._field(b"priority")), pa.int32()),
            "attributes": self._attributes,
            "details": lambda: pa.array(map(_details, self._entries), pa.string()),
        }
        return columns[name]()

    def _field(self, name: bytes) -> list[Any]:
        return [fields.get(name) for fields in self._entries]

    def _text(self, name: bytes) -> Any:
        values = [value or None for value in self._field(name)]  # a purge has no id
        return pa.array(values, pa.binary()).cast(pa.string())

    def _attributes(self) -> Any:
        found = [_items(value) for value in self._field(b"attributes")]
        return pa.array(found, pa.map_(pa.string(), pa.string()))


def _number(value: bytes | None) -> int | None:
    return None if value is None else int(value)


def _items(value: bytes | None) -> list[tuple[str, str]] | None:
    return list(_attributes(value).items()) or None if value is not None else None


def _sent_at(message_id: bytes | None) -> int | None:
    return int(message_id[:_ID_TIME_DIGITS], 16) if message_id else None


def _details(fields: dict[bytes, bytes]) -> str | None:
    rest = {name.decode(): text.decode() for name, text in fields.items() if name not in _COLUMNS}
    return msgspec.json.encode(rest).decode() if rest else None
