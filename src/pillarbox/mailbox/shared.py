"""The interface of a store that several brokers share: queues with attributes, and deliveries.

Each backend implements it with verbs (see `runner`). A queue has a version, which changes with its
attributes. A verb with an outdated version does nothing and raises `StaleQueueError`, so a broker
can cache a queue's attributes: outdated ones never take effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.url import without_password


def missing_queue(url: str) -> InvalidParameterError:
    """Return the error for a URL whose queue does not exist."""
    return InvalidParameterError("url", without_password(url), "an existing queue")


class StaleQueueError(Exception):
    """The queue was changed or deleted since it was looked up. Nothing was changed."""


class CrowdedQueueError(Exception):
    """The limit of messages in flight is reached. Nothing was changed."""


class SharedDraft(Struct, gc=False):
    """A message to be sent."""

    body: bytes
    delay: int  # nanoseconds
    priority: int
    attributes: dict[str, str] | None
    group: str | None = None
    deduplication: str | None = None  # the deduplication id, with the group if it is per group


def in_rows(
    drafts: Iterable[SharedDraft], alike: Callable[[SharedDraft], object]
) -> Iterator[list[SharedDraft]]:
    """Split messages, in order, into batches that one call can send.

    A batch has the same value of `alike`; messages with deduplication ids need only the same delay
    and priority.
    """

    def key(draft: SharedDraft) -> object:
        if draft.deduplication is None:
            return alike(draft)
        return draft.delay, draft.priority

    return (list(row) for _, row in groupby(drafts, key))


class SharedId(NamedTuple):
    """The id of a message in its store, and its sequence number."""

    id: str
    sequence: int


class SharedDelivery(Struct, gc=False):
    """One delivery of a message. Times are nanoseconds since the epoch."""

    id: SharedId
    token: bytes
    number: int
    sent_at: int
    leased_at: int
    first_leased_at: int
    priority: int
    attributes: dict[str, str]
    group: str | None
    source: str | None  # source queue of a dead letter
    body: bytes


class LiveBroker(NamedTuple):
    """A broker of the store with a recent heartbeat (nanoseconds since the epoch)."""

    id: str
    seen_at: int
    said: str


class QueueDescription(NamedTuple):
    """A queue as the store describes it."""

    version: str  # empty for a queue that was not created by a broker
    notes: dict[str, Any]
    dead: str | None
    max_deliveries: int
    sources: tuple[str, ...]
    paused: bool
    fair: bool


class QueueSettings(NamedTuple):
    """The settings of a broker's queue that the store enforces."""

    retention: int | None  # nanoseconds; None: unlimited
    dead: str | None = None
    max_deliveries: int = 0
    fair: bool = False  # applies to a new queue only


class SharedQueueVerbs(Protocol):
    """The verbs of one queue, at one version."""

    name: str
    closed: bool

    @property
    def alike(self) -> Callable[[SharedDraft], object]:
        """Return the key function for `in_rows`: equal keys can be sent in one call."""

    def send_shared(self, row: Sequence[SharedDraft]) -> Verb[list[SharedId]]:
        """Send one batch of `in_rows`, all or none; a duplicate gets the id of the original."""

    def receive_shared(
        self, count: int, timeout: int, wait: int, attempt: str | None
    ) -> Verb[list[SharedDelivery]]:
        """Lease messages. Repeating an `attempt` returns the same messages while it holds them."""

    def give_back(self, deliveries: Sequence[tuple[str, bytes]]) -> Verb[None]:
        """Return undelivered messages to the front of the queue, uncounted."""

    def delete_held(self, deliveries: Sequence[tuple[str, bytes]]) -> Verb[list[bool]]:
        """Delete the messages of these deliveries; return for each whether its lease was valid."""

    def delete_any(self, ids: Sequence[str]) -> Verb[int]:
        """Delete messages in any state; return how many were deleted."""

    def exist(self, ids: Sequence[str]) -> Verb[list[bool]]: ...

    def change_shared(
        self, delivery: tuple[str, bytes], timeout: int, held_max: int, *, holder_only: bool
    ) -> Verb[bool | None]:
        """Change a visibility timeout; return False if the message is gone, None if too late."""

    def times(self, state: State, count: int) -> Verb[dict[str, int]]:
        """Return when scheduled messages are due or leases end, by id, soonest first."""

    def waiting(self, count: int) -> Verb[list[tuple[str, str | None]]]:
        """Return the first ready messages, each with its source queue if it is a dead letter."""

    def redrive_shared(self, ids: Sequence[str], to: str | None) -> Verb[int]:
        """Move ready messages to another queue or their source queue; return how many."""

    def sweep(self, count: int) -> Verb[int]:
        """Delete up to `count` messages past their retention; return how many were deleted."""

    def purge_shared(self) -> Verb[None]: ...

    def stats(self) -> Verb[Stats]: ...


class SharedStore(Protocol):
    """A store of queues that several brokers use."""

    async def do(self, request: Any) -> Any:
        """Make one request for a verb and return the response."""

    async def wake(self, verbs: SharedQueueVerbs) -> None:
        """End the long polls of these verbs."""

    async def close(self) -> None: ...

    def open(self) -> Verb[bytes]:
        """Prepare the store; return the secret that its brokers share."""

    def queue(self, name: str, version: str, in_flight_max: int) -> SharedQueueVerbs: ...

    def describe(self, name: str) -> Verb[QueueDescription | None]: ...

    def names(self) -> Verb[Iterable[str]]: ...

    def create(self, name: str, notes: dict[str, Any], settings: QueueSettings) -> Verb[bool]:
        """Create a queue; return False if the name is taken."""

    def configure(
        self, name: str, version: str, notes: dict[str, Any], settings: QueueSettings
    ) -> Verb[None]:
        """Change a queue if it still has this version."""

    def drop(self, name: str, recent_seconds: int) -> Verb[None]: ...

    def dropped_recently(self, name: str) -> Verb[bool]: ...

    def pause(self, name: str, *, paused: bool) -> Verb[None]:
        """Pause or resume delivery from this queue."""

    def beat(self, broker_id: str, seconds: int, said: str) -> Verb[list[LiveBroker]]:
        """Record a heartbeat valid for `seconds` (0: stopping); return all live brokers."""

    def keep_if(self, name: str, before: str | None, after: str) -> Verb[bool]:
        """Store a value shared by all brokers if it is still `before`; return whether it was."""

    def kept(self, name: str) -> Verb[str | None]: ...

    def begin_purge(self, name: str, seconds: int) -> Verb[bool]:
        """Start a purge; return False if one was started less than `seconds` ago."""
