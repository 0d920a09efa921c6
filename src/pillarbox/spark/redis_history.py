"""The history of a queue on Redis that was opened with `journal=True`: a stream of its events.

An index is an entry's id in one number, `milliseconds << 20 | sequence`, so indices grow but are
not dense. Redis does not tell which entries a trimmed stream has lost. It does count those that
were ever added, so an offset also says how many came before it (`seen`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from pillarbox.closing import Closing
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.connection import RedisConnection
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.redis.options import RETRY_SECONDS, servers_of_url
from pillarbox.spark.errors import OptionError
from pillarbox.spark.outline import INDEX, Outline
from pillarbox.spark.rows import Rows, Wanted, Words

Range = tuple[int, int]
SEEN = "seen"
SEQUENCE_BITS = 20
_MILLISECOND_NS = 1_000_000
_PAGE = 5_000
_COUNTS_MAX = 10_000
_ID_TIME_DIGITS = 14  # an id begins with its time: microseconds, in hexadecimal digits
_COLUMNS = frozenset((b"kind", b"id", b"time", b"body", b"attributes", b"priority"))
_TIME = pa.timestamp("us", "UTC")
_attributes = msgspec.json.Decoder(dict[str, str]).decode


class Stream(Closing):
    """The stream of one queue."""

    def __init__(self, url: str) -> None:
        servers, self.queue, _ = servers_of_url(url, asynchronous=False)
        self._connection = RedisConnection(servers, RETRY_SECONDS)
        self._keys = keys_of(self.queue)
        self.key = self._keys.key("journal")

    def close(self) -> None:
        self._connection.close()

    def ask(self, *command: Any) -> Any:
        return self._connection.do(Call(self.queue, self._keys.slot, None, list(command)))

    def is_kept(self) -> bool:
        return bool(self.ask("HGET", self._keys.key("queue"), "journal"))

    def entries(self, start: int, stop: int, count: int = _PAGE) -> list[Any]:
        """At most so many entries from an index on; [id, fields] of each."""
        found: list[Any] = self.ask("XRANGE", self.key, _id(start), _id(stop - 1), "COUNT", count)
        return found

    def facts(self) -> dict[bytes, Any]:
        """What Redis knows of the stream; nothing if there is none yet."""
        try:
            told = self.ask("XINFO", "STREAM", self.key)
        except MailboxError as error:
            if "no such key" not in str(error):
                raise
            return {}
        return told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))


class RedisHistory:
    """The entries of one stream."""

    mailbox = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._stream = Stream(url)
        self._counts: dict[int, int] = {}  # how many entries were added before an index
        if not self._stream.is_kept():
            raise OptionError(
                f"the queue {self._stream.queue!r} keeps no history: open its mailbox once with "
                "journal=True, or consume it instead, with option stagingPath"
            )
        self.refresh()

    @property
    def first(self) -> int:
        return self._first

    @property
    def end(self) -> int:
        return self._end

    def refresh(self) -> None:
        facts = self._stream.facts()
        length, added = int(facts.get(b"length", 0)), int(facts.get(b"entries-added", 0))
        self._length, self._lost = length, added - length
        self._end = index_of(facts.get(b"last-generated-id", b"0-0")) + 1 if facts else 0
        self._first = index_of(facts[b"first-entry"][0]) if length else self._end
        if len(self._counts) > _COUNTS_MAX:
            self._counts.clear()
        self._counts |= {self._first: self._lost, self._end: added}

    def close(self) -> None:
        self._stream.__exit__()

    def index_at_time(self, time_ns: int) -> int:
        at = max(self._first, (time_ns // _MILLISECOND_NS) << SEQUENCE_BITS)
        while found := self._stream.entries(at, self._end):
            for entry_id, fields in found:
                if time_ns_of(fields) >= time_ns:
                    return index_of(entry_id)
            at = index_of(found[-1][0]) + 1
        return self._end

    def offset(self, index: int) -> dict[str, int]:
        seen = self._counts.get(index)
        return {INDEX: index} if seen is None else {INDEX: index, SEEN: seen}

    def has_lost(self, start: Mapping[str, int]) -> bool:
        if SEEN not in start:  # it began at a time, or an index, and nothing was read since
            return False
        seen = self._counts[start[INDEX]] = start[SEEN]
        return seen < self._lost

    def after(self, start: int, rows: int) -> int:
        at, left = start, rows
        while left > 0:
            found = self._stream.entries(at, self._end, min(left, _PAGE))
            if not found:
                break
            at = index_of(found[-1][0]) + 1
            left -= len(found)
        if start in self._counts:
            self._counts.setdefault(at, self._counts[start] + rows - left)
        return at

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        return min(end, self.after(start, max(1, bytes_max // self._entry_bytes())))

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Range]]:
        total = self._length * self._entry_bytes()
        outline = Outline([(self._first, 0), (self._end, total)])
        return [[each] for each in outline.ranges(start, end, bytes_max, count_min)]

    def source(self) -> RedisSource:
        return RedisSource(self._url)

    def _entry_bytes(self) -> int:
        size = self._stream.ask("MEMORY", "USAGE", self._stream.key) or 0
        return max(1, int(size) // max(1, self._length))


@dataclass(frozen=True)
class RedisSource:
    """Reads ranges of the stream in tasks."""

    url: str

    def rows(self, pieces: Sequence[Range], wanted: Wanted) -> Iterator[Rows]:
        with Stream(self.url) as stream:
            if wanted.queues is not None and stream.queue not in wanted.queues:
                return
            for start, stop in pieces:
                at = start
                while at < stop and (found := stream.entries(at, stop)):
                    rows = RedisRows(found, stream.queue, wanted.kinds)
                    if len(rows):
                        yield rows
                    at = index_of(found[-1][0]) + 1


def _id(index: int) -> str:
    return f"{index >> SEQUENCE_BITS}-{index & ((1 << SEQUENCE_BITS) - 1)}"


# -- entries as columns; `scripts/journal.lua` says what is in them -------------------------------


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
