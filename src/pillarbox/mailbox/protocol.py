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

    B = TypeVarWithDefault("B", default=Any)  # Any if the body type is not given
else:
    B = TypeVar("B")  # TypeVar defaults need Python 3.13

# A body type: a class, or a special form such as a union, `Any` or `Literal[]`.
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
        """Ready + scheduled + in flight, without dead letters; same as `approximate_count`."""
        return self.ready + self.scheduled + self.in_flight

    def _repr_html_(self) -> str:
        return notebook.table("Stats", notebook.figures(self))


class DeadLetterPolicy(Struct, frozen=True):
    """Dead-letter a message after `max_deliveries` failed deliveries.

    `name` is the dead-letter queue (default: the name of the mailbox with `_dlq` appended, before
    `.fifo`).
    """

    max_deliveries: int = 5
    name: str | None = None

    def __post_init__(self) -> None:
        whole("max_deliveries", self.max_deliveries, 1, DELIVERIES_MAX)

    def queue_of(self, name: str) -> str:
        """Return the name of the dead-letter queue for queue `name`."""
        stem = name.removesuffix(".fifo")
        return queue_name(f"{stem}_dlq{name[len(stem) :]}" if self.name is None else self.name)


class QueueOptions(TypedDict, total=False):
    """Options to open a mailbox on any backend.

    With `create=False`, open an existing queue without changing it; raise if it does not exist.
    `dead_letters` applies to new and existing queues, the other options to new ones only.
    """

    create: bool
    dead_letters: DeadLetterPolicy | None
    redelivery: Redelivery
    capacity: int | None


class FairOptions(QueueOptions, total=False):
    """Options to open a mailbox on any backend except SQS.

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
    """The options of `send_many`, applied to each message: those of `ask`, and `reply_to`.

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
        """Send all messages or none (SQS: in batches of 10) and return their ids in order."""

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
        """Delete all messages (ready, scheduled, in flight) and return how many there were."""

    def approximate_count(self) -> int:
        """Return the number of ready, scheduled and in-flight messages."""

    def stats(self) -> Stats:
        """Return the message counts by state and the age of the oldest message."""

    def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[Message[T | Undecodable]]:
        """Return messages without receiving them: no lease, no delivery counted."""

    def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, in any state, and return how many were deleted."""

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Move dead letters to their source queues, or to queue `to`; return how many moved."""

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
        """The dead-letter queue; None without one, or before the mailbox is open."""

    async def open(self) -> Self:
        """Open the mailbox now instead of on first use, so that errors are raised here."""

    async def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Send a message and return its unique id. It can't be received before its delay ends."""

    async def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Send all messages or none (SQS: in batches of 10) and return their ids in order."""

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
        """Delete all messages (ready, scheduled, in flight) and return how many there were."""

    async def approximate_count(self) -> int:
        """Return the number of ready, scheduled and in-flight messages."""

    async def stats(self) -> Stats:
        """Return the message counts by state and the age of the oldest message."""

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """Return messages without receiving them: no lease, no delivery counted."""

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, in any state, and return how many were deleted."""

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Move dead letters to their source queues, or to queue `to`; return how many moved."""

    async def close(self) -> None:
        """Wake all waiting receives. The mailbox can no longer be used."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
