"""What can be asked of a queue, as data. Whatever varies (now, keys) comes with the command."""

from __future__ import annotations

from msgspec import Struct

from pillarbox.core.queue import Lease, Queue, Record


class Send(Struct, frozen=True):
    """Put messages into the queue, receivable after `delay` nanoseconds."""

    records: list[Record]
    delay: int = 0


class Reschedule(Struct, frozen=True):
    """Let a message that is scheduled wait until `due` instead."""

    key: int
    due: int


class Force(Struct, frozen=True):
    """Put everything that is scheduled into the line, before its time."""


class Receive(Struct, frozen=True):
    """Lease up to `count` messages for `timeout` nanoseconds."""

    count: int
    timeout: int


class Acknowledge(Struct, frozen=True):
    """The messages are done."""

    leases: list[Lease]


class Nack(Struct, frozen=True):
    """The messages could not be handled: back into the line, now or after `delay`."""

    leases: list[Lease]
    delay: int = 0


class Release(Struct, frozen=True):
    """The messages were not looked at: back, with no delivery counted."""

    leases: list[Lease]
    to_front: bool = False


class Extend(Struct, frozen=True):
    """The deadlines become now + `timeout`."""

    leases: list[Lease]
    timeout: int


class Reject(Struct, frozen=True):
    """The messages will never be handled: to the dead-letter queue at once."""

    leases: list[Lease]
    reason: str


class Redrive(Struct, frozen=True):
    """Move these waiting messages to another queue, as new there."""

    keys: frozenset[int]
    target: Queue


class Remove(Struct, frozen=True):
    """Delete messages by key, whatever their state."""

    keys: frozenset[int]


class Purge(Struct, frozen=True):
    """Delete everything."""


class Tick(Struct, frozen=True):
    """Nothing is asked; whatever is due happens."""


Command = (
    Send
    | Reschedule
    | Force
    | Receive
    | Acknowledge
    | Nack
    | Release
    | Extend
    | Reject
    | Redrive
    | Remove
    | Purge
    | Tick
)
