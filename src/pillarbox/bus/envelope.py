"""The messages of a bus: a `Letter` is stored in a queue, an `Envelope` is received.

In JSON, names are in camel case: `sender` is `from`, and `task_id` is `taskId`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from pillarbox.mailbox.message import Delivered, Undecodable, as_datetime


class Letter(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The stored body of a message."""

    sender: str = msgspec.field(name="from")
    payload: Any = None
    task_id: str | None = None


class _Document(Struct, frozen=True, omit_defaults=True, rename="camel"):
    def to_json(self) -> dict[str, Any]:
        """Return a JSON object, with names in camel case such as `createdAt`."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Envelope(_Document, frozen=True):
    """A message as its recipient receives it."""

    id: str
    created_at: datetime
    to: str
    sender: str = msgspec.field(name="from")
    payload: Any
    task_id: str | None = None


class SendResult(_Document, frozen=True):
    """The id of a message and, if it is delayed, its delivery time (ISO 8601, UTC)."""

    message_id: str
    scheduled_delivery_time: str | None = None


def envelope(message: Delivered[Any], to: str) -> Envelope:
    """Return a message as its recipient receives it; one of another program has no sender."""
    letter: Letter | Undecodable = message.body
    if isinstance(letter, Undecodable):
        letter = Letter("", {"undecodable": letter.error})
    return Envelope(
        id=message.id,
        created_at=message.enqueued_at,
        to=to,
        sender=letter.sender,
        payload=letter.payload,
        task_id=letter.task_id,
    )


def iso(epoch_ns: int) -> str:
    """Format a time as ISO 8601 in UTC, rounded up so that the message is due by then."""
    time = as_datetime(epoch_ns + 999)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
