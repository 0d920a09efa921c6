"""What can happen to a queue. Events say what happened, with all times resolved.

On the hot path the event of a send is its records and that of a receive its leases, in
lists: an object for each idea would cost more than the idea. `journal` writes them as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from pillarbox.core.queue import Lease, Outcome, Queue, Record


class Sent(Struct, frozen=True, gc=False):
    """Messages joined the line."""

    records: list[Record]


class Scheduled(Struct, frozen=True, gc=False):
    """Messages wait for their time."""

    records: list[Record]
    due: int


class CameDue(Struct, frozen=True, gc=False):
    """A scheduled message's time came, and it joined the line."""

    record: Record
    at: int


class Rescheduled(Struct, frozen=True, gc=False):
    """A scheduled message waits for another time."""

    record: Record
    due: int


class Leased(Struct, frozen=True, gc=False):
    """Messages were taken from the head of the line, and each has one holder now."""

    leases: list[Lease]


class Hidden(Struct, frozen=True, gc=False):
    """A waiting message is in flight once more, uncounted: whoever held it before says so."""

    leases: list[Lease]


class Acknowledged(Struct, frozen=True, gc=False):
    """Messages are done and gone."""

    leases: list[Lease]


class Returned(Struct, frozen=True, gc=False):
    """A holder gave a message back, or its lease ran out: ready now, or at `due`."""

    lease: Lease
    at: int
    outcome: Outcome
    due: int = 0


class Released(Struct, frozen=True, gc=False):
    """A holder gave a message back as if it had never been delivered."""

    lease: Lease
    to_front: bool


class Extended(Struct, frozen=True, gc=False):
    """A lease has a new deadline."""

    lease: Lease
    deadline: int
    timeout: int


class Died(Struct, frozen=True, gc=False):
    """A message failed for the last time and moved to the dead-letter queue."""

    lease: Lease
    at: int
    outcome: Outcome
    reason: str


class DiedInLine(Struct, frozen=True, gc=False):
    """A message at the head of the line had no deliveries left and moved likewise."""

    record: Record
    at: int
    reason: str


class Redriven(Struct, frozen=True, gc=False):
    """Dead letters moved to a queue, as if they were new there."""

    records: list[Record]
    target: Queue
    at: int


class Removed(Struct, frozen=True, gc=False):
    """Messages were deleted in whatever state they were, or because of their age."""

    keys: list[int]
    expired: bool = False


class Purged(Struct, frozen=True, gc=False):
    """Everything was deleted, and the memory of duplicates with it."""


Event = (
    Sent
    | Scheduled
    | CameDue
    | Rescheduled
    | Leased
    | Hidden
    | Acknowledged
    | Returned
    | Released
    | Extended
    | Died
    | DiedInLine
    | Redriven
    | Removed
    | Purged
)


def records_of(event: Any) -> Iterator[Record]:
    """The messages that an event touches, but for those that it names by their keys."""
    for name in ("records", "leases"):
        for each in getattr(event, name, ()):
            yield each if isinstance(each, Record) else each.record
    if hasattr(event, "lease"):
        yield event.lease.record
    if hasattr(event, "record"):
        yield event.record
