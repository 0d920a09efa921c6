"""The events of a bus, and their log messages.

Times are ISO 8601, UTC. Events are published while no lock is held: a subscriber may use the bus.
"""

from __future__ import annotations

from msgspec import Struct, structs

from pillarbox.logger import logger


class BusEvent(Struct, frozen=True):
    """The base class of all events: subscribe to it to receive all of them."""


class MessageScheduled(BusEvent, frozen=True):
    """A message was sent with a delay."""

    message_id: str
    to: str
    sender: str
    delay_ms: float
    deliver_at: str


class MessageRescheduled(BusEvent, frozen=True):
    """The delay of a message was changed."""

    message_id: str
    to: str
    deliver_at: str


class MessageCancelled(BusEvent, frozen=True):
    """A delayed message was cancelled."""

    message_id: str
    to: str


class MessageDelivered(BusEvent, frozen=True):
    """A delayed message joined its queue, `drift_ms` after it was due."""

    message_id: str
    to: str
    deliver_at: str
    delivered_at: str
    drift_ms: float


class DelayedForced(BusEvent, frozen=True):
    """Delayed messages were delivered early."""

    count: int


class DelayedKept(BusEvent, frozen=True):
    """A stop left delayed messages on disk."""

    count: int


class DelayedAbandoned(BusEvent, frozen=True):
    """A stop lost delayed messages, because they were in memory only."""

    count: int


class HandlerFailed(BusEvent, frozen=True):
    """A handler raised; `outcome` is what happens to the message."""

    message_id: str
    to: str
    delivery_count: int
    error: str
    outcome: str


_LOG_LINES = {
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
    """Log an event; as a warning if something failed or was lost."""
    log = logger.warning if isinstance(event, _WARNINGS) else logger.info
    log(_LOG_LINES[type(event)], **structs.asdict(event))
