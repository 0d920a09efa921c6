"""The history of a queue that was opened with `history=True`, read by offset.

    from pillarbox.mailbox.postgres import history

    events = history.read("postgresql://localhost/shop/orders")
    more = history.read("postgresql://localhost/shop/orders", after=events[-1].offset)

Events are written by the transaction that does things. They are read in the order of transactions,
up to the oldest that still runs, so that a reader who goes on from an offset misses none.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import as_datetime
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.options import named_in
from pillarbox.mailbox.postgres.queues import ask
from pillarbox.mailbox.verbs import user_attributes

START = "0-0"
_READ = (
    "SELECT transaction::text, position, kind, message_id, at, body, head, fields "
    "FROM pillarbox.events WHERE queue = %s AND (transaction, position) > (%s::xid8, %s::bigint) "
    "AND transaction < pg_snapshot_xmin(pg_current_snapshot()) "
    "ORDER BY transaction, position LIMIT %s::integer"
)
_TRIM = (
    "WITH gone AS (DELETE FROM pillarbox.events WHERE queue = %s "
    "AND (transaction, position) < (%s::xid8, %s::bigint) RETURNING 1) SELECT count(*) FROM gone"
)


class Event(Struct, frozen=True):
    """What happened to a message. `details` has the fields that only some kinds have."""

    offset: str
    kind: str
    message_id: str  # empty: it happened to all of them
    at: datetime
    body: bytes | None = None  # of what was sent or scheduled, as are the attributes
    attributes: dict[str, str] = {}
    details: dict[str, Any] = {}


def read(url: str, after: str = START, count: int = 1_000) -> list[Event]:
    """Up to `count` events of a queue in order, from the first one behind an offset on."""
    limits.whole("count", count, 1, limits.MESSAGES_MAX)
    name, _ = named_in(url)
    rows = ask(url, _READ, name, *_offset("after", after), str(count))
    return [_event(row) for row in rows]


def trim(url: str, before: str) -> int:
    """Forget what happened before an offset; how many events that were."""
    name, _ = named_in(url)
    forgotten: int = ask(url, _TRIM, name, *_offset("before", before))[0][0]
    return forgotten


def _offset(parameter: str, text: str) -> tuple[str, str]:
    transaction, dash, position = text.partition("-")
    if not (dash and transaction.isdecimal() and position.isdecimal()):
        raise InvalidParameterError(parameter, text, "the offset of an event, as 742-1")
    return transaction, position


def _event(row: Any) -> Event:
    transaction, position, kind, message_id, at, body, head, fields = row
    return Event(
        f"{transaction}-{position}",
        kind,
        "" if message_id is None else wire.public_id(message_id),
        as_datetime(at * 1_000),
        body,
        dict(user_attributes(wire.attributes_in(head))),
        {name: value for name, value in (fields or {}).items() if value is not None},
    )
