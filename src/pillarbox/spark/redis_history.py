"""The history of a Redis queue that was opened with `journal=True`: a Redis stream of events.

An index is the entry id as one number, `milliseconds << 20 | sequence`, so indices increase but
have gaps. Redis does not record which entries were trimmed. It does count all entries ever added,
so an offset also has the number of entries before it (`seen`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.redis.connection import RedisClient
from pillarbox.spark.columns import Columns, EventRows, Rows, Values
from pillarbox.spark.errors import DataLossError, OptionError
from pillarbox.spark.history import INDEX, History, Outline, RowScan
from pillarbox.spark.location import without_secret
from pillarbox.spark.options import ReadOptions

Piece = tuple[int, int, int | None]  # start, end, and the number of entries before the batch
Entry = dict[bytes, Any]  # the fields of an entry, and its index
SEEN = "seen"
SEQUENCE_BITS = 20
_MILLISECOND_NS = 1_000_000
_PAGE = 5_000
_COUNTS_MAX = 10_000
_ID_TIME_DIGITS = 14  # a message id begins with its time in microseconds, in hexadecimal
_COLUMNS = frozenset((b"index", b"kind", b"id", b"time", b"body", b"attributes", b"priority"))
_attributes = msgspec.json.Decoder(dict[str, str]).decode


class Stream(RedisClient):
    """The Redis stream with the events of one queue."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.key = self.keys.key("journal")

    def is_kept(self) -> bool:
        return bool(self.ask("HGET", self.keys.key("queue"), "journal"))

    def entries(self, start: int, stop: int, count: int = _PAGE) -> list[Any]:
        """Return at most `count` entries from an index on, each as [id, fields]."""
        page: list[Any] = self.ask("XRANGE", self.key, _id(start), _id(stop - 1), "COUNT", count)
        return page

    def info(self) -> dict[bytes, Any]:
        """Return XINFO of the stream; empty if it does not exist yet."""
        try:
            info = self.ask("XINFO", "STREAM", self.key)
        except MailboxError as error:
            if "no such key" not in str(error):
                raise
            return {}
        return info if isinstance(info, dict) else dict(zip(info[::2], info[1::2], strict=True))

    def lost(self) -> int:
        """Return the number of entries that were trimmed."""
        info = self.info()
        return int(info.get(b"entries-added", 0)) - int(info.get(b"length", 0))


class RedisHistory(History):
    """The history of one queue: the entries of its stream."""

    def __init__(self, url: str) -> None:
        self._stream = Stream(url)
        self._counts: dict[int, int] = {}  # the number of entries added before an index
        if not self._stream.is_kept():
            raise OptionError(
                f"the queue {self._stream.queue!r} keeps no history: open its mailbox once with "
                "journal=True, or consume it instead, with option stagingPath"
            )
        self.refresh()

    def refresh(self) -> None:
        info = self._stream.info()
        length, added = int(info.get(b"length", 0)), int(info.get(b"entries-added", 0))
        self._length, self._lost = length, added - length
        self.end = index_of(info.get(b"last-generated-id", b"0-0")) + 1 if info else 0
        self.first = index_of(info[b"first-entry"][0]) if length else self.end
        if len(self._counts) > _COUNTS_MAX:
            self._counts.clear()
        self._counts |= {self.first: self._lost, self.end: added}

    def close(self) -> None:
        self._stream.close()

    def index_at_time(self, time_ns: int) -> int:
        at = max(self.first, (time_ns // _MILLISECOND_NS) << SEQUENCE_BITS)
        while page := self._stream.entries(at, self.end):
            for entry_id, fields in page:
                if time_ns_of(fields) >= time_ns:
                    return index_of(entry_id)
            at = index_of(page[-1][0]) + 1
        return self.end

    def offset(self, index: int) -> dict[str, int]:
        seen = self._counts.get(index)
        return {INDEX: index} if seen is None else {INDEX: index, SEEN: seen}

    def has_lost(self, start: Mapping[str, int]) -> bool:
        if SEEN not in start:  # a start at a time or an index, from which nothing was read yet
            return False
        seen = self._counts[start[INDEX]] = start[SEEN]
        return seen < self._lost

    def after(self, start: int, rows: int) -> int:
        at, left = start, rows
        while left > 0:
            page = self._stream.entries(at, self.end, min(left, _PAGE))
            if not page:
                break
            at = index_of(page[-1][0]) + 1
            left -= len(page)
        if start in self._counts:
            self._counts.setdefault(at, self._counts[start] + rows - left)
        return at

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        return min(end, self.after(start, max(1, bytes_max // self._entry_bytes())))

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Piece]]:
        total = self._length * self._entry_bytes()
        outline = Outline([(self.first, 0), (self.end, total)])
        seen = self._counts.get(start)
        return [[(*each, seen)] for each in outline.ranges(start, end, bytes_max, count_min)]

    def scan(self, options: ReadOptions, schema: Any) -> RedisScan:
        return RedisScan(options, Columns(schema, mailbox=True))

    def _entry_bytes(self) -> int:
        size = self._stream.ask("MEMORY", "USAGE", self._stream.key) or 0
        return max(1, int(size) // max(1, self._length))


class RedisScan(RowScan):
    """Reads ranges of the stream in tasks."""

    def rows(self, pieces: Sequence[Piece]) -> Iterator[Rows]:
        url, kinds = self.options.url, self.options.kinds
        with Stream(url) as stream:
            for start, stop, seen in pieces:
                at = start
                while at < stop and (page := stream.entries(at, stop)):
                    entries = [
                        entry
                        for entry in map(_entry, page)
                        if kinds is None or entry[b"kind"].decode() in kinds
                    ]
                    if entries:
                        yield EventRows(entries, stream.queue, _VALUES)
                    at = index_of(page[-1][0]) + 1
                if self.options.fail_on_loss and seen is not None and stream.lost() > seen:
                    raise DataLossError(without_secret(url), start, stop)


def _id(index: int) -> str:
    return f"{index >> SEQUENCE_BITS}-{index & ((1 << SEQUENCE_BITS) - 1)}"


# -- entries as columns; `scripts/journal.lua` documents their fields -----------------------------


def index_of(entry_id: bytes) -> int:
    """Return the index of an entry, given its id in the stream."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds) << SEQUENCE_BITS | int(sequence)


def time_ns_of(fields: list[bytes]) -> int:
    """Return the time at which an entry was written."""
    return int(fields[fields.index(b"time") + 1]) * 1_000


def _entry(entry: Any) -> Entry:
    entry_id, fields = entry
    return {b"index": index_of(entry_id), **dict(zip(fields[::2], fields[1::2], strict=True))}


def _details(entry: Entry) -> str | None:
    rest = {name.decode(): text.decode() for name, text in entry.items() if name not in _COLUMNS}
    return msgspec.json.encode(rest).decode() if rest else None


_VALUES: Values = {
    "index": itemgetter(b"index"),
    "time": lambda entry: int(entry[b"time"]),
    "kind": lambda entry: entry[b"kind"].decode(),
    "id": lambda entry: entry[b"id"].decode() or None,  # a purge has none
    "enqueued_at": lambda entry: int(entry[b"id"][:_ID_TIME_DIGITS] or b"0", 16) or None,
    "body": lambda entry: entry.get(b"body"),
    "priority": lambda entry: int(entry[b"priority"]) if b"priority" in entry else None,
    "attributes": lambda entry: list(_attributes(entry.get(b"attributes", b"{}")).items()) or None,
    "details": _details,
}
