"""The history of a queue that was opened with `journal=True`, read by offset.

    from pillarbox.mailbox.redis import history

    events = history.read("redis://localhost/orders")
    more = history.read("redis://localhost/orders", after=events[-1].offset)

The script that changes a queue also writes the event: `scripts/journal.lua` documents the entries
of the stream. Kinds are those of every other history (`core/journal.py`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import as_datetime
from pillarbox.mailbox.redis.connection import RedisClient
from pillarbox.mailbox.redis.options import named_in
from pillarbox.mailbox.verbs import user_attributes

START = "0-0"
_NAMED = frozenset(("kind", "id", "time", "body", "attributes", "priority"))
_attributes = msgspec.json.Decoder(dict[str, str]).decode


class Event(Struct, frozen=True):
    """An event of a message. `details` has the fields that only some kinds have."""

    offset: str
    kind: str
    message_id: str  # empty: all messages
    at: datetime
    body: bytes | None = None  # of sent and scheduled messages, like the next two
    attributes: dict[str, str] = {}
    priority: int | None = None
    details: dict[str, str] = {}


def read(url: str, after: str = START, count: int = 1_000) -> list[Event]:
    """Return up to `count` events of a queue after the offset `after`, in order."""
    limits.whole("count", count, 1, limits.MESSAGES_MAX)
    entries = _ask(url, "XRANGE", f"({_offset('after', after)}", "+", "COUNT", count)
    return [_event(offset, fields) for offset, fields in entries]


def trim(url: str, before: str) -> int:
    """Delete the events before an offset; return how many were deleted."""
    count: int = _ask(url, "XTRIM", "MINID", _offset("before", before))
    return count


def _ask(url: str, command: str, *arguments: Any) -> Any:
    named_in(url)  # raises if the URL names no queue
    with RedisClient(url) as client:
        return client.ask(command, client.keys.key("journal"), *arguments)


def _offset(parameter: str, text: str) -> str:
    milliseconds, dash, number = text.partition("-")
    if not (dash and milliseconds.isdecimal() and number.isdecimal()):
        raise InvalidParameterError(parameter, text, "the offset of an event, as 1700000000000-0")
    return text


def _event(offset: bytes, fields: list[bytes]) -> Event:
    found = {name.decode(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}
    priority = found.get("priority")
    return Event(
        offset.decode(),
        found["kind"].decode(),
        found["id"].decode(),
        as_datetime(int(found["time"]) * 1_000),
        found.get("body"),
        dict(user_attributes(_attributes(found.get("attributes", b"{}")))),
        None if priority is None else int(priority),
        {name: value.decode() for name, value in found.items() if name not in _NAMED},
    )
