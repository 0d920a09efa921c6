"""The interface of a backend for the contract suite, with the capabilities that it lacks.

A test never accesses a clock or a server: it opens mailboxes, advances time and waits for parked
receives through its `Backend`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import Enum
from itertools import count
from typing import Any, ClassVar, TypeVar

from msgspec import Struct

from pillarbox.core import limits
from pillarbox.mailbox.abstract import AbstractAsyncMailbox
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.contract.as_sync import EventLoopThread, SyncMailbox

F = TypeVar("F", bound=Callable[..., object])
_numbers = count(1)


class Capability(Enum):
    """A capability that some backends lack. The value completes "this backend can't ..."."""

    PRIORITY = "deliver higher priorities first"
    FIFO_ORDER = "deliver in the order of sending"
    ORIGINAL_PLACE = 'keep the position of a redelivered message (redelivery="original")'
    TAIL = "put a redelivered message at the end of the queue"
    FULL_BATCH = "fill a batch whenever there are enough messages"
    BIG_BATCH = "take more than 10 messages at a time"
    EXACT_COUNT = "count its messages exactly"
    OLDEST_AGE = "report the age of the oldest message"
    PURGE_AT_WILL = "purge immediately, and twice within a minute"
    PURGE_TELLS_HOLDERS = "refuse the handle of a message that was purged"
    PEEK = "peek at messages without receiving them"
    DELETE_BY_ID = "delete a message by its id"
    CAPACITY = "enforce a capacity"
    SUBSECOND_TIMES = "use timeouts shorter than a second"
    MESSAGE_DELAY = "delay one message and not the others"
    LONG_DELAY = "delay a message by more than 15 minutes"
    STRICT_LEASES = "refuse a receipt handle whose lease ran out before redelivery"
    RELEASE_UNCOUNTED = "release a message without counting the delivery"
    REJECT = "dead-letter a message before its last delivery"
    DEAD_AT_ONCE = "dead-letter a message immediately after its last delivery"
    DEAD_LETTER_HISTORY = "record why a message was dead-lettered, and its deliveries"
    REDRIVE = "redrive dead letters to their source queues"
    REDRIVE_BY_CHOICE = "redrive only some of the dead letters, or to another mailbox"
    REDRIVE_KEEPS_ID = "keep the id of a redriven message"
    GROUPS = "keep order within message groups"
    FAIR = "let a tenant that holds too much wait behind the others (fair=True)"
    DEDUPLICATION = "deduplicate messages"
    FIRST_COME_FIRST_SERVED = "serve waiting receives in order of arrival"
    HANG_UP = "notice immediately that a waiting receive was cancelled"
    SETTLE_AFTER_CLOSE = "acknowledge a message after its mailbox was closed"
    TIME_TRAVEL = "run on a fake clock"


class Bounds(Struct, frozen=True):
    """The limits of a backend."""

    body_bytes_max: int = limits.BODY_BYTES_MAX
    messages_max: int = limits.MESSAGES_MAX
    delay_seconds_max: int = limits.DELAY_SECONDS_MAX
    visibility_seconds_max: int = limits.VISIBILITY_SECONDS_MAX
    wait_seconds_max: int = limits.WAIT_SECONDS_MAX
    attributes_max: int = limits.ATTRIBUTES_MAX
    attribute_bytes: int = 0  # the overhead of an attribute besides its name and value


class Backend(ABC):
    """Opens mailboxes for one test of the contract, and is closed after it."""

    name: ClassVar[str]
    cannot: Mapping[Capability, str] = {}  # each with the reason
    bounds = Bounds()
    patience_seconds: float = 10  # a call that takes longer is considered hung
    look_seconds: float = 0  # how long to wait for a message that must be there
    crowd_messages: int = 500  # messages that each thread of a concurrency test sends

    @abstractmethod
    def open(
        self, body_type: Any = Any, *, name: str | None = None, **options: Any
    ) -> Mailbox[Any]:
        """Open a mailbox; without a name, on a new and empty queue.

        The options are `dead_letters`, `redelivery`, `capacity` and `fair`, as for every mailbox.
        """

    @abstractmethod
    def again(self, mailbox: Mailbox[Any], body_type: Any = Any) -> Mailbox[Any]:
        """Open a second mailbox object on the same queue, as another process would."""

    def put_raw(self, mailbox: Mailbox[Any], data: bytes) -> str:
        """Send a body that may not decode as the body type of the mailbox."""
        return self.again(mailbox, bytes).send(data)

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Advance the clock of the queues by at least this much, or wait."""

    @abstractmethod
    def wait_until_parked(self, mailbox: Mailbox[Any], count: int = 1) -> None:
        """Return when this many receives are waiting on the queue, as far as is detectable."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources after a test."""

    def can(self, capability: Capability) -> bool:
        """Return False for a capability in `cannot`."""
        return capability not in self.cannot

    def refusal(self, capability: Capability) -> str:
        """Return the reason for skipping a test that needs a capability in `cannot`."""
        return f"declared: {self.name} can't {capability.value}: {self.cannot[capability]}"


class MailboxClassBackend(Backend):
    """A backend that opens mailboxes of one class, for threads or for asyncio."""

    mailbox_class: Any
    suffix = ""  # of the names of new queues

    def __init__(self, loop: EventLoopThread | None = None, **where: Any) -> None:
        """Pass `where`, the options for the location of the queues, to every mailbox."""
        self._where = where
        self._opened: list[Mailbox[Any]] = []
        self._resources = ExitStack()  # closed at the end of the test
        if loop is None and issubclass(self.mailbox_class, AbstractAsyncMailbox):
            loop = EventLoopThread()
            self._resources.callback(loop.close)
        self.loop = loop

    def open(
        self, body_type: Any = Any, *, name: str | None = None, **options: Any
    ) -> Mailbox[Any]:
        own_name = f"box-{next(_numbers)}{self.suffix}" if name is None else name
        return self._open(own_name, body_type, **{"dead_letters": None, **options})

    def again(self, mailbox: Mailbox[Any], body_type: Any = Any) -> Mailbox[Any]:
        return self._open(mailbox.name, body_type)

    def close(self) -> None:
        for mailbox in self._opened:
            mailbox.close()
        self._resources.close()

    def _open(self, name: str, body_type: Any, **options: Any) -> Mailbox[Any]:
        mailbox = self._as_sync(self.mailbox_class(name, body_type, **options, **self._where))
        self._opened.append(mailbox)
        return mailbox

    def _as_sync(self, mailbox: Any) -> Mailbox[Any]:
        adapted: Mailbox[Any] = mailbox if self.loop is None else SyncMailbox(mailbox, self.loop)
        return adapted


def needs(*capabilities: Capability) -> Callable[[F], F]:
    """Mark a test as needing capabilities; it is skipped on backends that lack one."""

    def mark(function: F) -> F:
        function.__dict__["needs"] = capabilities
        return function

    return mark


def needed_by(function: object) -> tuple[Capability, ...]:
    """Return the capabilities that a test was marked with."""
    marked: tuple[Capability, ...] = getattr(function, "needs", ())
    return marked
