"""What travels on a bus: a letter in its recipient's queue, an envelope in the recipient's hands.

Names are those of Python in programs and those of JSON on the wire: `sender` is `from`,
`task_id` is `taskId`. When a message was scheduled is known to its queue alone, so an envelope
has no `deliver_at`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from pillarbox.mailbox.message import Delivered, as_datetime


class Letter(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The body of a message: all that its queue does not know anyway."""

    sender: str = msgspec.field(name="from")
    payload: Any = None
    task_id: str | None = None


class Envelope(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message as its recipient gets it."""

    id: str
    created_at: datetime
    to: str
    sender: str = msgspec.field(name="from")
    payload: Any
    task_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As it goes over a wire: `id`, `createdAt`, `to`, `from`, `payload`, `taskId`."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class SendResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What became of a message: its id and, if it waits, when it is delivered (ISO 8601, UTC)."""

    message_id: str
    scheduled_delivery_time: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As it goes over a wire: `messageId` and, if delayed, `scheduledDeliveryTime`."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def envelope(message: Delivered[Letter], to: str) -> Envelope:
    letter = message.body
    return Envelope(
        id=message.id,
        created_at=message.enqueued_at,
        to=to,
        sender=letter.sender,
        payload=letter.payload,
        task_id=letter.task_id,
    )


def iso(epoch_ns: int) -> str:
    """ISO 8601, UTC; rounded up to a microsecond, so that what was due then is there."""
    time = as_datetime(epoch_ns + 999)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
