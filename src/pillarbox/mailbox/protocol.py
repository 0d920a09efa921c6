"""The protocols `Mailbox` and `AsyncMailbox`, and their options.

They are structural: a class with these methods is a mailbox.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    _SpecialForm,
    get_args,
    runtime_checkable,
)

from msgspec import Struct

from pillarbox import notebook
from pillarbox.core.limits import DELIVERIES_MAX, queue_name, whole
from pillarbox.core.queue import Redelivery
from pillarbox.mailbox.message import AsyncMessage, Message, Undecodable

T = TypeVar("T")

State = Literal["ready", "scheduled", "in_flight"]
STATES: tuple[State, ...] = get_args(State)

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    B = TypeVarWithDefault("B", default=Any)  # of a mailbox whose body type is not known
else:
    B = TypeVar("B")  # only Python 3.13 knows defaults

# A body type: a class, or a form that the type checker does not read: a union, `Any`, `Literal[]`.
BodyType = type[B] | UnionType | _SpecialForm
ANY: Any = Any

__all__ = ["AsyncMailbox", "DeadLetterPolicy", "Mailbox", "Redelivery", "State", "Stats"]


class Stats(Struct, frozen=True):
    """Message counts of a mailbox by state, and the age of the message at its head."""

    ready: int
    scheduled: int
    in_flight: int
    dead: int
    oldest_age_seconds: float | None

    @property
    def total(self) -> int:
        """The same as `approximate_count`: ready, scheduled and in flight, without dead letters."""
        return self.ready + self.scheduled + self.in_flight

    def _repr_html_(self) -> str:
        return notebook.table("Stats", notebook.figures(self))


class DeadLetterPolicy(Struct, frozen=True):
    """Dead-letter a message after `max_deliveries` failed deliveries.

    `name` is the dead-letter queue (default: the name of the mailbox with `_dlq` appended).
    """

    max_deliveries: int = 5
    name: str | None = None

    def __post_init__(self) -> None:
        whole("max_deliveries", self.max_deliveries, 1, DELIVERIES_MAX)

    def queue_of(self, name: str) -> str:
        """The dead-letter queue of a queue of this name."""
        return queue_name(self.name or f"{name}_dlq")


class QueueOptions(TypedDict, total=False):
    """Options to open a mailbox on any backend.

    `create=False` opens an existing queue and changes nothing; it raises if there is none.
    `dead_letters` applies to new and existing queues, the other options to new ones only.
    """

    create: bool
    dead_letters: DeadLetterPolicy | None
    redelivery: Redelivery
    capacity: int | None


class FairOptions(QueueOptions, total=False):
    """Options to open a mailbox on any backend but SQS.

    With `fair=True` the group of a message names a tenant: a tenant with more than its share of
    the messages in flight waits behind the others. Such groups keep no order, and a redelivered
    message keeps its original position.
    """

    fair: bool


class AskOptions(TypedDict, total=False):
    """The options of `RequestClient.ask`.

    `delay_seconds` (default: 0) is the time before a message can be received. `priority` is 0 (the
    default) to 255; higher numbers first. `attributes` are sent with the body. Messages of one
    `group` are delivered in order, one at a time.
    """

    delay_seconds: float
    priority: int
    attributes: Mapping[str, str] | None
    group: str | None


class BatchOptions(AskOptions, total=False):
    """The options of `send_many`, for each message: those of `ask`, and `reply_to`.

    `reply_to` names the mailbox that `Message.reply` sends to.
    """

    reply_to: str | None


class SendOptions(BatchOptions, total=False):
    """The options of `send`: those of a batch, and `deduplication_id`.

    If a message with this id was sent within the last five minutes, nothing is sent, and `send`
    returns the message id of the earlier one.
    """

    deduplication_id: str | None


class ReceiveOptions(TypedDict, total=False):
    """The options of `receive`.

    Up to `max_messages` (default: 1) are leased for `visibility_timeout` seconds (default: 30). If
    there is none, wait for up to `wait_time_seconds` (default: 0; for `messages`: 20).
    """

    max_messages: int
    visibility_timeout: float
    wait_time_seconds: float


@runtime_checkable
class Mailbox(Protocol[T]):
    """A work queue. Receiving leases a message to one consumer until it is acknowledged."""

    @property
    def name(self) -> str:
        """The name of the queue."""

    @property
    def closed(self) -> bool:
        """True after `close`."""

    @property
    def dead_letters(self) -> Mailbox[T] | None:
        """The dead-letter queue; None without a dead-letter policy."""

    def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Send a message and return its unique id. It can't be received before its delay ends."""

    def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Send all of them, or none, in one step (SQS: in batches); returns their ids, in order."""

    def receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[T]]:
        """Lease up to `max_messages`. Waits for the first message, never for a full batch."""

    def messages(self, **options: Unpack[ReceiveOptions]) -> Iterator[Message[T]]:
        """Receive messages one by one until the mailbox is closed."""

    def acknowledge_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Delete these messages in one step; False for each whose lease has ended."""

    def nack_many(
        self, messages: Iterable[Message[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Return these messages for redelivery, now or later, in one step."""

    def extend_visibility_many(self, messages: Iterable[Message[T]], timeout: float) -> list[bool]:
        """Set the end of these leases to `timeout` seconds from now, in one step."""

    def release_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Return these messages without counting the delivery, in one step."""

    def purge(self) -> int:
        """Delete all messages (ready, scheduled, in flight); returns their number."""

    def approximate_count(self) -> int:
        """The number of messages that are ready, scheduled or in flight."""

    def stats(self) -> Stats:
        """Message counts by state, and the age of the oldest message."""

    def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[Message[T | Undecodable]]:
        """Return messages without receiving them: none is leased, no delivery is counted."""

    def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, in any state; returns how many were deleted."""

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Move dead letters back to their source queues, or `to` another; returns their number."""

    def close(self) -> None:
        """Wake all waiting receives. The mailbox can no longer be used."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class AsyncMailbox(Protocol[T]):
    """`Mailbox` for asyncio: the same methods, as coroutines.

    Creating the object does no I/O, so it never blocks the event loop. `async with`, `await
    mailbox.open()` or the first awaited call opens the mailbox.
    """

    @property
    def name(self) -> str:
        """The name of the queue."""

    @property
    def closed(self) -> bool:
        """True after `close`."""

    @property
    def dead_letters(self) -> AsyncMailbox[T] | None:
        """The dead-letter queue; None without a policy, and until the mailbox is open."""

    async def open(self) -> Self:
        """Open the mailbox now instead of on first use, so that errors are raised here."""

    async def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Send a message and return its unique id. It can't be received before its delay ends."""

    async def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Send all of them, or none, in one step (SQS: in batches); returns their ids, in order."""

    async def receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[AsyncMessage[T]]:
        """Lease up to `max_messages`. Waits for the first message, never for a full batch."""

    def messages(self, **options: Unpack[ReceiveOptions]) -> AsyncIterator[AsyncMessage[T]]:
        """Receive messages one by one until the mailbox is closed."""

    async def acknowledge_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Delete these messages in one step; False for each whose lease has ended."""

    async def nack_many(
        self, messages: Iterable[AsyncMessage[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Return these messages for redelivery, now or later, in one step."""

    async def extend_visibility_many(
        self, messages: Iterable[AsyncMessage[T]], timeout: float
    ) -> list[bool]:
        """Set the end of these leases to `timeout` seconds from now, in one step."""

    async def release_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Return these messages without counting the delivery, in one step."""

    async def purge(self) -> int:
        """Delete all messages (ready, scheduled, in flight); returns their number."""

    async def approximate_count(self) -> int:
        """The number of messages that are ready, scheduled or in flight."""

    async def stats(self) -> Stats:
        """Message counts by state, and the age of the oldest message."""

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """Return messages without receiving them: none is leased, no delivery is counted."""

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, in any state; returns how many were deleted."""

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Move dead letters back to their source queues, or `to` another; returns their number."""

    async def close(self) -> None:
        """Wake all waiting receives. The mailbox can no longer be used."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
