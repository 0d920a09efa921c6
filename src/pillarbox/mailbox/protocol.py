"""What a mailbox is, whatever is behind it. Structural: anything of this shape is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType, UnionType
from typing import (
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
from pillarbox.core.limits import DELIVERIES_MAX, whole
from pillarbox.core.queue import Redelivery
from pillarbox.mailbox.message import AsyncMessage, Message, Undecodable

T = TypeVar("T")

State = Literal["ready", "scheduled", "in_flight"]
STATES: tuple[State, ...] = get_args(State)

# A body type that is no class: a union, `Any`, `Literal[...]`. What it stands for is not checked.
SpecialForm = UnionType | _SpecialForm

__all__ = ["AsyncMailbox", "DeadLetterPolicy", "Mailbox", "Redelivery", "State", "Stats"]


class Stats(Struct, frozen=True):
    """What is in a mailbox. `oldest_age_seconds` is that of the message first in line."""

    ready: int
    scheduled: int
    in_flight: int
    dead: int
    oldest_age_seconds: float | None

    @property
    def total(self) -> int:
        """What `approximate_count` answers: dead letters are in a mailbox of their own."""
        return self.ready + self.scheduled + self.in_flight

    def _repr_html_(self) -> str:
        return notebook.table("Stats", notebook.figures(self))


class DeadLetterPolicy(Struct, frozen=True):
    """After `max_deliveries` failed ones a message moves to the mailbox `name`.

    Without a name that is the mailbox's own name with `_dlq` behind it.
    """

    max_deliveries: int = 5
    name: str | None = None

    def __post_init__(self) -> None:
        whole("max_deliveries", self.max_deliveries, 1, DELIVERIES_MAX)


class QueueOptions(TypedDict, total=False):
    """How a mailbox of any backend may be opened.

    `create=False` opens a queue that exists and changes nothing; it raises if there is none.
    `dead_letters` is for a new queue and for one that exists, the other options are for a new one.
    """

    create: bool
    dead_letters: DeadLetterPolicy | None
    redelivery: Redelivery
    capacity: int | None


class AskOptions(TypedDict, total=False):
    """The options of `RequestClient.ask`.

    `delay_seconds` (default: 0) hides a message at first. `priority` is 0 (the default) to 255; the
    higher goes first. `attributes` travel beside the body. Messages of one `group` are delivered in
    order, one after the other.
    """

    delay_seconds: float
    priority: int
    attributes: Mapping[str, str] | None
    group: str | None


class BatchOptions(AskOptions, total=False):
    """The options of `send_many`, which hold for each message: those of `ask`, and `reply_to`.

    `reply_to` names the mailbox that `Message.reply` sends to.
    """

    reply_to: str | None


class SendOptions(BatchOptions, total=False):
    """The options of `send`: those of a batch, and `deduplication_id`.

    A message with the id of one that was sent within the last five minutes is not sent again; its
    `send` returns the id of that one.
    """

    deduplication_id: str | None


class ReceiveOptions(TypedDict, total=False):
    """The options of `receive`.

    `max_messages` (default: 1) are leased for `visibility_timeout` seconds (default: 30). If there
    is none, wait for `wait_time_seconds` (default: 0; of `messages`: 20).
    """

    max_messages: int
    visibility_timeout: float
    wait_time_seconds: float


@runtime_checkable
class Mailbox(Protocol[T]):
    """A work queue: one holder for each message, and a lease on it."""

    @property
    def name(self) -> str:
        """The queue's name."""

    @property
    def closed(self) -> bool:
        """True after `close`."""

    @property
    def dead_letters(self) -> Mailbox[T] | None:
        """The mailbox of this one's dead letters, if it has a policy."""

    def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Put a message in; its unique id. It can't be received before its delay is over."""

    def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Put all of them in, or none: one step, not a loop. Their ids, in order."""

    def receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""

    def messages(self, **options: Unpack[ReceiveOptions]) -> Iterator[Message[T]]:
        """Receive messages one after the other, until the mailbox is closed."""

    def acknowledge_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""

    def nack_many(
        self, messages: Iterable[Message[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""

    def extend_visibility_many(self, messages: Iterable[Message[T]], timeout: float) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""

    def release_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Give these back with no delivery counted."""

    def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""

    def approximate_count(self) -> int:
        """Ready + scheduled + in flight."""

    def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""

    def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[Message[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""

    def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class AsyncMailbox(Protocol[T]):
    """`Mailbox` for asyncio: the same verbs, to be awaited.

    Making the object does no I/O and so never blocks the event loop. The mailbox is opened by
    `async with`, by `await mailbox.open()`, or by the first verb that is awaited.
    """

    @property
    def name(self) -> str:
        """The queue's name."""

    @property
    def closed(self) -> bool:
        """True after `close`."""

    @property
    def dead_letters(self) -> AsyncMailbox[T] | None:
        """The mailbox of this one's dead letters, if it has a policy; known once it is open."""

    async def open(self) -> Self:
        """Open it now, rather than with the first verb: an error is raised here then."""

    async def send(self, body: T, **options: Unpack[SendOptions]) -> str:
        """Put a message in; its unique id. It can't be received before its delay is over."""

    async def send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        """Put all of them in, or none: one step, not a loop. Their ids, in order."""

    async def receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[AsyncMessage[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""

    def messages(self, **options: Unpack[ReceiveOptions]) -> AsyncIterator[AsyncMessage[T]]:
        """Receive messages one after the other, until the mailbox is closed."""

    async def acknowledge_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""

    async def nack_many(
        self, messages: Iterable[AsyncMessage[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""

    async def extend_visibility_many(
        self, messages: Iterable[AsyncMessage[T]], timeout: float
    ) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""

    async def release_many(self, messages: Iterable[AsyncMessage[T]]) -> list[bool]:
        """Give these back with no delivery counted."""

    async def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""

    async def approximate_count(self) -> int:
        """Ready + scheduled + in flight."""

    async def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""

    async def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[AsyncMessage[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""

    async def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[AsyncMessage[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""

    async def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
