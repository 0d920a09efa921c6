"""What a bus tells its dispatcher, and how each of these is logged.

Times are ISO 8601, UTC. An event is published after it happened, and outside every lock: a
subscriber may use the bus.
"""

from __future__ import annotations

from msgspec import Struct, structs

from pillarbox.logger import logger


class BusEvent(Struct, frozen=True):
    """Anything below: subscribe to this to hear of all."""


class MessageScheduled(BusEvent, frozen=True):
    """A message was sent with a delay."""

    message_id: str
    to: str
    sender: str
    delay_ms: float
    deliver_at: str


class MessageRescheduled(BusEvent, frozen=True):
    """A delayed message was given another time."""

    message_id: str
    to: str
    deliver_at: str


class MessageCancelled(BusEvent, frozen=True):
    """A delayed message was taken back."""

    message_id: str
    to: str


class MessageDelivered(BusEvent, frozen=True):
    """A delayed message joined its recipient's queue, so long after its time."""

    message_id: str
    to: str
    deliver_at: str
    delivered_at: str
    drift_ms: float


class DelayedForced(BusEvent, frozen=True):
    """Delayed messages were delivered before their time."""

    count: int


class DelayedKept(BusEvent, frozen=True):
    """A stop left delayed messages on disk, where they keep their times."""

    count: int


class DelayedAbandoned(BusEvent, frozen=True):
    """A forced exit left delayed messages in memory, where they are lost."""

    count: int


class HandlerFailed(BusEvent, frozen=True):
    """A handler raised; what becomes of the message, and after how many seconds."""

    message_id: str
    to: str
    delivery_count: int
    error: str
    outcome: str


_SAID = {
    MessageScheduled: "message scheduled",
    MessageRescheduled: "message rescheduled",
    MessageCancelled: "message cancelled",
    MessageDelivered: "delayed message delivered",
    DelayedForced: "delayed messages forced",
    DelayedKept: "delayed messages kept on disk",
    DelayedAbandoned: "delayed messages abandoned by a forced exit",
    HandlerFailed: "handler failed",
}
_WARNINGS = (DelayedAbandoned, HandlerFailed)


def log_event(event: BusEvent) -> None:
    """One structured line; a warning if something was lost or went wrong."""
    tell = logger.warning if isinstance(event, _WARNINGS) else logger.info
    tell(_SAID[type(event)], **structs.asdict(event))
