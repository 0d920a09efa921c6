"""The history of a queue that was opened with `history=True`, read by offset.

    from pillarbox.mailbox.postgres import history

    events = history.read("postgresql://localhost/shop/orders")
    more = history.read("postgresql://localhost/shop/orders", after=events[-1].offset)

The transaction that changes a queue also writes the event. Events are read in the order of
transactions, up to the oldest one still running, so a reader that continues from an offset misses
none.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import as_datetime
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.connection import PostgresClient
from pillarbox.mailbox.postgres.errors import SchemaMissingError
from pillarbox.mailbox.postgres.options import named_in
from pillarbox.mailbox.verbs import user_attributes

START = "0-0"
_NUMBER_BITS = 20  # of the event number in an index; the higher bits are the transaction id
_READ = (
    "SELECT index, at, enqueued_at, kind, message_id, body, head, fields FROM pillarbox.events "
    "WHERE queue = %s::integer AND index >= %s::bigint AND index < %s::bigint "
    "AND (%s::text[] IS NULL OR kind = ANY (%s::text[])) ORDER BY index LIMIT %s::integer"
)
_AFTER = (
    "SELECT max(index) + 1 FROM (SELECT index FROM pillarbox.events WHERE queue = %s::integer "
    "AND index >= %s::bigint AND index < %s::bigint ORDER BY index LIMIT %s::bigint) AS found"
)
_SIZE = (
    "SELECT avg(100 + coalesce(octet_length(body), 0) + coalesce(octet_length(head), 0))::bigint "
    "FROM (SELECT body, head FROM pillarbox.events WHERE queue = %s::integer "
    "AND index >= %s::bigint ORDER BY index LIMIT 1000) AS sample"
)
_COUNT = (
    "SELECT count(*) FROM pillarbox.events "
    "WHERE queue = %s::integer AND index >= %s::bigint AND index < %s::bigint"
)
_EVERY = (
    "SELECT index FROM (SELECT index, row_number() OVER (ORDER BY index) AS n "
    "FROM pillarbox.events WHERE queue = %s::integer AND index >= %s::bigint "
    "AND index < %s::bigint) AS numbered WHERE n %% %s::bigint = 1 ORDER BY index OFFSET 1"
)
_AT_TIME = (
    "SELECT index FROM pillarbox.events WHERE queue = %s::integer AND index >= %s::bigint "
    "AND at >= %s::bigint ORDER BY index LIMIT 1"
)


class Row(Struct, frozen=True, gc=False):
    """One row of the event table. Times are microseconds."""

    index: int
    at: int
    enqueued_at: int | None
    kind: str
    message_id: int | None
    body: bytes | None
    head: bytes | None
    fields: dict[str, Any] | None

    def attributes(self) -> dict[str, str]:
        return dict(user_attributes(wire.attributes_in(self.head)))

    def details(self) -> dict[str, Any]:
        found = {name: value for name, value in (self.fields or {}).items() if value is not None}
        if "reason" in found:
            found["reason"] = b64decode(found["reason"]).decode()
        return found


class Bounds(NamedTuple):
    """The readable range, `first` up to `end`. Events before `lost` were trimmed."""

    queue: int
    kept: bool  # whether the queue records its history
    lost: int
    first: int
    end: int


class EventTable(PostgresClient):
    """The events of one queue, over its own connection."""

    def __init__(self, url: str) -> None:
        named_in(url)  # raises if the URL names no queue
        super().__init__(url)

    def bounds(self) -> Bounds | None:
        """Return the readable range; None if the queue does not exist."""
        try:
            rows = self.ask("SELECT * FROM pillarbox.history_bounds(%s)", self.queue)
        except SchemaMissingError:
            return None
        return Bounds(*rows[0]) if rows else None

    def read(
        self, queue: int, start: int, stop: int, count: int, kinds: Collection[str] | None = None
    ) -> list[Row]:
        """Return up to `count` events from index `start` on, of these kinds or of all."""
        wanted = None if kinds is None else list(kinds)
        rows = self.ask(_READ, str(queue), str(start), str(stop), wanted, wanted, str(count))
        return [Row(*row) for row in rows]

    def after(self, queue: int, start: int, stop: int, count: int) -> int:
        """Return the index after `count` events from `start`, or after the last before `stop`."""
        found: int | None = self._one(_AFTER, queue, start, stop, count)
        return start if found is None else found

    def event_bytes(self, queue: int, start: int) -> int:
        """Return the average size of events from an index on, in bytes."""
        return int(self._one(_SIZE, queue, start) or 1)

    def count(self, queue: int, start: int, stop: int) -> int:
        return int(self._one(_COUNT, queue, start, stop))

    def every(self, queue: int, start: int, stop: int, count: int) -> list[int]:
        """Return the indices that split a range into parts of `count` events."""
        rows = self.ask(_EVERY, str(queue), str(start), str(stop), str(count))
        return [row[0] for row in rows]

    def at_time(self, queue: int, start: int, microseconds: int) -> int | None:
        """Return the first event from `start` on that was written at or after a time."""
        found: int | None = self._one(_AT_TIME, queue, start, microseconds)
        return found

    def trim(self, before: int) -> int:
        rows = self.ask("SELECT pillarbox.trim_history(%s, %s::bigint)", self.queue, str(before))
        return int(rows[0][0])

    def _one(self, statement: str, *numbers: int) -> Any:
        rows = self.ask(statement, *map(str, numbers))
        return rows[0][0] if rows else None


class Event(Struct, frozen=True):
    """An event of a message. `details` has the fields that only some kinds have."""

    offset: str
    kind: str
    message_id: str  # empty: all messages
    at: datetime
    body: bytes | None = None  # of sent and scheduled messages, like the attributes
    attributes: dict[str, str] = {}
    details: dict[str, Any] = {}


def read(url: str, after: str = START, count: int = 1_000) -> list[Event]:
    """Return up to `count` events of a queue after the offset `after`, in order."""
    limits.whole("count", count, 1, limits.MESSAGES_MAX)
    start = _index("after", after) + 1
    with EventTable(url) as table:
        known = table.bounds()
        rows = [] if known is None else table.read(known.queue, start, known.end, count)
        return [_event(row) for row in rows]


def trim(url: str, before: str) -> int:
    """Delete the events before an offset; return how many were deleted."""
    with EventTable(url) as table:
        return table.trim(_index("before", before))


def _index(parameter: str, offset: str) -> int:
    transaction, dash, number = offset.partition("-")
    if not (dash and transaction.isdecimal() and number.isdecimal()):
        raise InvalidParameterError(parameter, offset, "the offset of an event, as 742-1")
    return (int(transaction) << _NUMBER_BITS) + int(number)


def _event(row: Row) -> Event:
    return Event(
        f"{row.index >> _NUMBER_BITS}-{row.index & ((1 << _NUMBER_BITS) - 1)}",
        row.kind,
        "" if row.message_id is None else wire.public_id(row.message_id),
        as_datetime(row.at * 1_000),
        row.body,
        row.attributes(),
        row.details(),
    )
