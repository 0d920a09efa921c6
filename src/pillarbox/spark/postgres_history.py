"""The history of a PostgreSQL queue that was opened with `history=True`: a table of events.

An index combines the id of the transaction that wrote the event with the event's number in that
transaction, so indices increase but have gaps. Only events older than every running transaction
are read, so no event can still be committed before the end of a batch. The database records what
was trimmed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import msgspec

from pillarbox.mailbox.postgres.history import Bounds, EventTable, Row
from pillarbox.mailbox.postgres.wire import public_id
from pillarbox.spark.columns import Columns, EventRows, Rows, Values
from pillarbox.spark.errors import DataLossError, OptionError
from pillarbox.spark.history import INDEX, TASK_BYTES_MIN, History, RowScan
from pillarbox.spark.location import without_secret
from pillarbox.spark.options import ReadOptions

Piece = tuple[int, int, int]  # start index, end index (exclusive), number of the queue
QUEUE = "queue"
_PAGE = 5_000


class PostgresHistory(History):
    """The events of one queue."""

    def __init__(self, url: str) -> None:
        self._table = EventTable(url)
        try:
            self.refresh()
        except BaseException:
            self._table.close()
            raise

    def refresh(self) -> None:
        self._bounds = _bounds(self._table)
        self.first, self.end = self._bounds.first, self._bounds.end

    def close(self) -> None:
        self._table.close()

    def index_at_time(self, time_ns: int) -> int:
        index = self._table.at_time(self._bounds.queue, self.first, -(-time_ns // 1_000))
        return self.end if index is None else min(index, self.end)

    def offset(self, index: int) -> dict[str, int]:
        return {INDEX: index, QUEUE: self._bounds.queue}

    def has_lost(self, start: Mapping[str, int]) -> bool:
        # A queue that was deleted and created again has lost its history.
        same = start.get(QUEUE, self._bounds.queue) == self._bounds.queue
        return not same or start[INDEX] < self._bounds.lost

    def after(self, start: int, rows: int) -> int:
        return self._table.after(self._bounds.queue, start, self.end, rows)

    def limit(self, start: int, end: int, bytes_max: int) -> int:
        size = self._table.event_bytes(self._bounds.queue, start)
        return min(end, self.after(start, max(1, bytes_max // size)))

    def partitions(
        self, start: int, end: int, bytes_max: int, count_min: int | None = None
    ) -> list[list[Piece]]:
        if start >= end:
            return []
        queue, table = self._bounds.queue, self._table
        count, size = table.count(queue, start, end), table.event_bytes(queue, start)
        if count_min is None:
            count_min = min(os.cpu_count() or 1, 1 + count * size // TASK_BYTES_MIN)
        parts = max(1, count_min, -(-count * size // bytes_max))
        cuts = table.every(queue, start, end, max(2, -(-count // parts))) if parts > 1 else []
        return [[(*each, queue)] for each in pairwise((start, *cuts, end))]

    def scan(self, options: ReadOptions, schema: Any) -> PostgresScan:
        return PostgresScan(options, Columns(schema, mailbox=True))


class PostgresScan(RowScan):
    """Reads ranges of the table in tasks."""

    def rows(self, pieces: Sequence[Piece]) -> Iterator[Rows]:
        with EventTable(self.options.url) as table:
            for start, stop, queue in pieces:
                at = start
                while page := table.read(queue, at, stop, _PAGE, self.options.kinds):
                    yield EventRows(page, table.queue, _VALUES)
                    at = page[-1].index + 1
                bounds = _bounds(table)
                lost = bounds.lost if bounds.queue == queue else stop
                if self.options.fail_on_loss and lost > start:  # possibly trimmed before the read
                    url = without_secret(self.options.url)
                    raise DataLossError(url, start, min(lost, stop))


def _bounds(table: EventTable) -> Bounds:
    bounds = table.bounds()
    if bounds is None or not bounds.kept:
        raise OptionError(
            f"the queue {table.queue!r} keeps no history: open its mailbox once with history=True, "
            "or consume it instead, with option stagingPath"
        )
    return bounds


def _id(row: Row) -> str | None:
    return None if row.message_id is None else public_id(row.message_id)


def _priority(row: Row) -> int | None:
    return None if row.fields is None else row.fields.get("priority")


def _details(row: Row) -> str | None:
    rest = {name: value for name, value in row.details().items() if name != "priority"}
    return msgspec.json.encode(rest).decode() if rest else None


_VALUES: Values = {
    "index": attrgetter("index"),
    "time": attrgetter("at"),
    "kind": attrgetter("kind"),
    "id": _id,
    "enqueued_at": attrgetter("enqueued_at"),
    "body": attrgetter("body"),
    "priority": _priority,
    "attributes": lambda row: list(row.attributes().items()) or None,
    "details": _details,
}
