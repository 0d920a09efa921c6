"""What brokers that share a store ask of it: queues with attributes, and messages by delivery.

Each backend answers with verbs (see `runner`). A queue has a version, which changes with its
attributes. A verb that comes with another version does nothing and raises `StaleQueueError`: so
what a broker knows of a queue may be old, and never takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.runner import Verb


class StaleQueueError(Exception):
    """The queue was changed or deleted since it was looked up. Nothing was done."""


class CrowdedQueueError(Exception):
    """As many messages are in flight as may be. Nothing was done."""


class SharedDraft(Struct, gc=False):
    """A message to be sent."""

    body: bytes
    delay: int  # nanoseconds
    priority: int
    attributes: dict[str, str] | None
    group: str | None = None
    deduplication: str | None = None  # what is compared, with the group if that counts


def in_rows(
    drafts: Iterable[SharedDraft], alike: Callable[[SharedDraft], object]
) -> Iterator[list[SharedDraft]]:
    """Messages in the order given, those together that one call can send.

    They have the same value of `alike`; those with deduplication ids only the same delay and
    priority.
    """

    def key(draft: SharedDraft) -> object:
        if draft.deduplication is None:
            return alike(draft)
        return draft.delay, draft.priority

    return (list(row) for _, row in groupby(drafts, key))


class SharedId(NamedTuple):
    """A message in its store, and its place in the order of sending."""

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
    source: str | None  # of a dead letter: the queue it came from
    body: bytes


class LiveBroker(NamedTuple):
    """A broker of the store that was seen lately (nanoseconds since the epoch)."""

    id: str
    seen_at: int
    said: str


class QueueDescription(NamedTuple):
    """What a store knows of a queue."""

    version: str  # empty for a queue that no broker made
    notes: dict[str, Any]
    dead: str | None
    max_deliveries: int
    sources: tuple[str, ...]
    paused: bool
    fair: bool


class QueueSettings(NamedTuple):
    """How a queue that brokers serve behaves, beside what its notes say."""

    retention: int | None  # nanoseconds; None: for ever
    dead: str | None = None
    max_deliveries: int = 0
    fair: bool = False  # of a new queue


class SharedQueueVerbs(Protocol):
    """One queue, at a version of it."""

    name: str
    closed: bool

    @property
    def alike(self) -> Callable[[SharedDraft], object]:
        """What messages of one call have in common."""

    def send_shared(self, row: Sequence[SharedDraft]) -> Verb[list[SharedId]]:
        """Send one of `in_rows`: all or none. For a duplicate, the id of the first."""

    def receive_shared(
        self, count: int, timeout: int, wait: int, attempt: str | None
    ) -> Verb[list[SharedDelivery]]:
        """Lease messages. The same `attempt` gets the same ones again while it holds them."""

    def give_back(self, deliveries: Sequence[tuple[str, bytes]]) -> Verb[None]:
        """To the front of the line, uncounted: nobody saw them."""

    def delete_held(self, deliveries: Sequence[tuple[str, bytes]]) -> Verb[list[bool]]:
        """Delete what these deliveries hold; for each, whether it held its message."""

    def delete_any(self, ids: Sequence[str]) -> Verb[int]:
        """Delete messages whoever holds them; how many there were."""

    def exist(self, ids: Sequence[str]) -> Verb[list[bool]]: ...

    def change_shared(
        self, delivery: tuple[str, bytes], timeout: int, held_max: int, *, holder_only: bool
    ) -> Verb[bool | None]:
        """Let a message be visible in `timeout`; False if it is not there; None if too late."""

    def times(self, state: State, count: int) -> Verb[dict[str, int]]:
        """When scheduled messages are due, or leases end, by id; the soonest first."""

    def waiting(self, count: int) -> Verb[list[tuple[str, str | None]]]:
        """Messages that wait, the first ones; of dead letters the queue they came from."""

    def redrive_shared(self, ids: Sequence[str], to: str | None) -> Verb[int]:
        """Move messages that wait to another queue, or where they came from; how many."""

    def sweep(self, count: int) -> Verb[int]:
        """Delete messages that are too old, so many at most; how many there were."""

    def purge_shared(self) -> Verb[None]: ...

    def stats(self) -> Verb[Stats]: ...


class SharedStore(Protocol):
    """The queues of one place."""

    async def do(self, request: Any) -> Any:
        """Make one request of a verb."""

    async def wake(self, verbs: SharedQueueVerbs) -> None:
        """End the receives of these verbs that wait."""

    async def close(self) -> None: ...

    def open(self) -> Verb[bytes]:
        """Prepare the store; the secret that its brokers share."""

    def queue(self, name: str, version: str, in_flight_max: int) -> SharedQueueVerbs: ...

    def describe(self, name: str) -> Verb[QueueDescription | None]: ...

    def names(self) -> Verb[Iterable[str]]: ...

    def create(self, name: str, notes: dict[str, Any], settings: QueueSettings) -> Verb[bool]:
        """False if there is a queue of this name."""

    def configure(
        self, name: str, version: str, notes: dict[str, Any], settings: QueueSettings
    ) -> Verb[None]:
        """Change a queue, if this is still its version."""

    def drop(self, name: str, recent_seconds: int) -> Verb[None]: ...

    def dropped_recently(self, name: str) -> Verb[bool]: ...

    def pause(self, name: str, *, paused: bool) -> Verb[None]:
        """Deliver nothing from this queue, or deliver again."""

    def beat(self, broker_id: str, seconds: int, said: str) -> Verb[list[LiveBroker]]:
        """This broker is alive for so many seconds (0: it stops); all that are."""

    def keep_if(self, name: str, before: str | None, after: str) -> Verb[bool]:
        """Keep a text for all brokers, if what was kept so far is `before`; whether it was."""

    def kept(self, name: str) -> Verb[str | None]: ...

    def begin_purge(self, name: str, seconds: int) -> Verb[bool]:
        """False if that was done less than so many seconds ago."""
