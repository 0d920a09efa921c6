"""The verbs of a mailbox: arguments are validated here, I/O is left to the backend.

A backend derives from `Verbs` and implements the underscored verbs as generators (see `runner`).
Those without an underscore validate the arguments and return the generator, so a wrong call
raises before anything is sent to the server.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from sys import modules
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, Unpack

from msgspec import Struct

from pillarbox import tracing
from pillarbox.codec import QUICK_ERRORS, Codec
from pillarbox.core import limits
from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxClosedError,
    SerializationError,
    UnknownOutcomeError,
)
from pillarbox.logger import logger
from pillarbox.mailbox.answers import IN_REPLY_TO, REPLY_TO, reads_json
from pillarbox.mailbox.message import DeadLetter, Details, Undecodable, as_datetime
from pillarbox.mailbox.protocol import STATES, ReceiveOptions, State, Stats
from pillarbox.mailbox.runner import Runnable, Verb

T = TypeVar("T")
D = TypeVar("D")  # the backend's representation of a delivery
X = TypeVar("X")

_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})

Where = Callable[[Any], bool]
Body = bytes | SerializationError | None  # an error if unreadable, None if lost


class Outgoing(Struct, gc=False):
    """Messages that are sent together; only their bodies differ."""

    bodies: list[bytes]
    delay: int = 0
    priority: int = 0
    attributes: dict[str, str] | None = None
    group: str | None = None
    deduplication_id: str | None = None


class Verbs(ABC, Generic[T, D]):
    """The verbs of one mailbox object. Times are passed to the backend in nanoseconds."""

    delay_seconds_max: ClassVar[int] = limits.DELAY_SECONDS_MAX
    wait_seconds_max: ClassVar[int] = limits.WAIT_SECONDS_MAX
    counts_attributes: ClassVar[bool] = True  # they count towards `max_body_bytes`
    where: str = ""  # the server, for display

    def __init__(
        self, name: str, codec: Codec[T], max_body_bytes: int = limits.BODY_BYTES_MAX
    ) -> None:
        self.name = name
        self.max_body_bytes = max_body_bytes
        self.closed = False
        self.use(codec)

    def use(self, codec: Codec[T]) -> None:
        self.codec = codec
        self.reads_json = reads_json(codec)

    # -- validated verbs -----------------------------------------------------------------------

    def send(
        self,
        bodies: Sequence[T],
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> Runnable[list[str]]:
        if self.closed:
            self._refuse()
        data = self.encoded(bodies)
        if tracing.API in modules:  # the program uses OpenTelemetry
            attributes = tracing.with_context(attributes)
        checked = None
        if attributes is not None or reply_to is not None:
            checked = self._checked_attributes(attributes, reply_to, max(map(len, data), default=0))
        delay = limits.seconds("delay_seconds", delay_seconds, self.delay_seconds_max)
        if priority.__class__ is not int or priority != 0:
            limits.priority(priority)
        if group is not None:
            limits.token("group", group)
        if deduplication_id is not None:
            limits.token("deduplication_id", deduplication_id)
        return self._send(Outgoing(data, delay, priority, checked, group, deduplication_id))

    def receive(self, mailbox: Any, **options: Unpack[ReceiveOptions]) -> Runnable[list[Any]]:
        return self._receive(mailbox, *self.receive_options(**options))

    def receive_options(
        self,
        max_messages: int = 1,
        visibility_timeout: float = limits.VISIBILITY_SECONDS_DEFAULT,
        wait_time_seconds: float = 0,
    ) -> tuple[int, int, int]:
        """Return the count, and the visibility timeout and wait time in nanoseconds."""
        if self.closed:
            self._refuse()
        longest = limits.VISIBILITY_SECONDS_MAX
        return (
            limits.whole("max_messages", max_messages, 1, limits.MESSAGES_MAX),
            limits.seconds("visibility_timeout", visibility_timeout, longest),
            limits.seconds("wait_time_seconds", wait_time_seconds, self.wait_seconds_max),
        )

    def nack(self, deliveries: Sequence[D], visibility_timeout: float) -> Runnable[list[bool]]:
        return self._nack(deliveries, self._lease("visibility_timeout", visibility_timeout))

    def extend(self, deliveries: Sequence[D], timeout: float) -> Runnable[list[bool]]:
        return self._extend(deliveries, self._lease("timeout", timeout))

    def reject(self, deliveries: Sequence[D], reason: str) -> Runnable[list[bool]]:
        return self._reject(deliveries, limits.text("reason", reason))

    def purge(self) -> Runnable[int]:
        self.refuse_if_closed()
        return self._purge()

    def peek(self, mailbox: Any, max_messages: int, state: State) -> Runnable[list[Any]]:
        count = limits.whole("max_messages", max_messages, 1, limits.MESSAGES_MAX)
        limits.one_of("state", state, STATES)
        return self._peek(mailbox, count, state)

    def delete(self, ids: Iterable[str]) -> Runnable[int]:
        self.refuse_if_closed()
        return self._delete(checked_ids(ids))

    def redrive(
        self, mailbox: Any, ids: Iterable[str] | None, where: Where | None, to: str | None
    ) -> Runnable[int]:
        self.refuse_if_closed()
        self.check_target(to)
        return self._redrive(mailbox, None if ids is None else checked_ids(ids), where, to)

    def check_target(self, to: str | None) -> None:
        """Raise if a redrive can't move messages to this queue."""
        if to is not None and self.queue_named(to, "to") == self.name:
            raise InvalidParameterError("to", to, "the name of another mailbox")

    def reply(self, to: str | None, in_reply_to: str, body: Any) -> Runnable[str]:
        if to is None:
            raise InvalidParameterError(
                "reply_to", to, "named by the sender of the message that is replied to"
            )
        return self._reply(to, in_reply_to, body)

    # -- implemented by the backend ------------------------------------------------------------

    @property
    def identity(self) -> object:
        """A value that is equal for two mailboxes of the same queue."""
        return self.name

    @abstractmethod
    def open(self) -> Runnable[None]:
        """Find or create the queue, and read its settings."""

    @abstractmethod
    def dead_letters(self) -> Verbs[T, D] | None:
        """Return the verbs of the dead-letter queue, if there is one."""

    @abstractmethod
    def _send(self, sent: Outgoing) -> Runnable[list[str]]: ...
    @abstractmethod
    def _receive(
        self, mailbox: Any, count: int, timeout: int, wait: int
    ) -> Runnable[list[Any]]: ...
    @abstractmethod
    def acknowledge(self, deliveries: Sequence[D]) -> Runnable[list[bool]]: ...
    @abstractmethod
    def _nack(self, deliveries: Sequence[D], delay: int) -> Runnable[list[bool]]: ...
    @abstractmethod
    def _extend(self, deliveries: Sequence[D], timeout: int) -> Runnable[list[bool]]: ...
    @abstractmethod
    def release(self, deliveries: Sequence[D]) -> Runnable[list[bool]]: ...
    @abstractmethod
    def _reject(self, deliveries: Sequence[D], reason: str) -> Runnable[list[bool]]: ...
    @abstractmethod
    def _purge(self) -> Runnable[int]: ...
    @abstractmethod
    def stats(self) -> Runnable[Stats]: ...
    @abstractmethod
    def _peek(self, mailbox: Any, count: int, state: State) -> Runnable[list[Any]]: ...
    @abstractmethod
    def _delete(self, ids: list[str]) -> Runnable[int]: ...
    @abstractmethod
    def _redrive(
        self, mailbox: Any, ids: list[str] | None, where: Where | None, to: str | None
    ) -> Runnable[int]: ...
    @abstractmethod
    def _reply(self, to: str, in_reply_to: str, body: Any) -> Runnable[str]: ...
    @abstractmethod
    def keep_for_answers(self) -> Runnable[None]:
        """Record that the client of this reply queue is still alive."""

    @abstractmethod
    def delete_queue(self) -> Runnable[None]:
        """Delete the reply queue of a closed client."""

    @abstractmethod
    def message_id(self, delivery: D) -> str: ...
    @abstractmethod
    def receipt_handle(self, delivery: D) -> str: ...
    @abstractmethod
    def details(self, delivery: D) -> Details: ...

    # -- shared by all backends ----------------------------------------------------------------

    def queue_named(self, to: str, parameter: str) -> str:
        """Return the queue name in a user's argument."""
        return limits.queue_name(to, parameter)

    def encoded(self, bodies: Sequence[T]) -> list[bytes]:
        try:
            data = list(map(self.codec.quick_encode, bodies))
        except QUICK_ERRORS:
            data = list(map(self.codec.encode, bodies))
        if sum(map(len, data)) > self.max_body_bytes:  # one of them may be too long
            limits.body_bytes(max(data, key=len), self.max_body_bytes)
        return data

    def _checked_attributes(
        self, attributes: Mapping[str, str] | None, reply_to: str | None, body_bytes: int
    ) -> dict[str, str]:
        """Return all attributes, including `reply_to`, after checking them and the total size."""
        checked = limits.user_attributes(attributes)
        if reply_to is not None:
            checked[REPLY_TO] = limits.text("reply_to", reply_to)
        if self.counts_attributes:
            parameter = "attributes" if attributes else "reply_to"
            limits.message_bytes(parameter, body_bytes, checked, self.max_body_bytes)
        return checked

    def _lease(self, parameter: str, seconds: float) -> int:
        return limits.seconds(parameter, seconds, limits.VISIBILITY_SECONDS_MAX)

    def log_undecodable(
        self, message_id: str, error: Exception, dead_lettered: bool | None = None
    ) -> None:
        """Log a message whose body does not decode."""
        more = {} if dead_lettered is None else {"dead_lettered": dead_lettered}
        logger.error(
            "could not decode a message body",
            mailbox=self.name,
            message_id=message_id,
            error=str(error),
            **more,
        )

    def decoded(
        self, mailbox: Any, deliveries: Sequence[D], numbers: list[int], bodies: Sequence[Body]
    ) -> tuple[list[Any], list[tuple[D, SerializationError]]]:
        """Return the decoded messages, and the deliveries that don't decode with their errors."""
        kind = mailbox._kind
        try:
            decoded = map(self.codec.quick_decode, bodies)  # type: ignore[arg-type]
            return list(map(kind, decoded, numbers, deliveries, repeat(mailbox))), []
        except QUICK_ERRORS:  # a body does not decode: decode one by one
            messages, failed = [], []
        for delivery, number, data in zip(deliveries, numbers, bodies, strict=True):
            try:
                messages.append(kind(self.body_of(data), number, delivery, mailbox))
            except SerializationError as error:
                failed.append((delivery, error))
        return messages, failed

    def received(
        self, mailbox: Any, deliveries: Sequence[D], numbers: list[int], bodies: Sequence[Body]
    ) -> Verb[list[Any]]:
        """Return the decoded messages; log and dead-letter those that don't decode."""
        messages, failed = self.decoded(mailbox, deliveries, numbers, bodies)
        for delivery, error in failed:
            dead_lettered = yield from self.has_dead_letters()
            self.log_undecodable(self.message_id(delivery), error, dead_lettered)
            if dead_lettered:
                rejected: Any = self._reject((delivery,), f"undecodable: {error}")
                with suppress(UnknownOutcomeError):  # redelivered, or already dead-lettered
                    yield from rejected
        return messages

    def has_dead_letters(self) -> Verb[bool]:
        """Return whether there is a dead-letter queue now: another mailbox may have set one."""
        yield from ()
        return self.dead_letters() is not None

    def body_of(self, data: Body) -> T:
        """Decode a body; raise if it was lost (None) or unreadable (an error)."""
        if data is None:
            raise SerializationError("the body was lost to disk corruption")
        if isinstance(data, SerializationError):
            raise data
        return self.codec.decode(data)

    def peeked(
        self, mailbox: Any, delivery: D, number: int, data: Body, raw: bytes | None = None
    ) -> Any:
        """Return a peeked message; `raw` is the body to show if `data` is unreadable."""
        body: T | Undecodable
        try:
            body = self.body_of(data)
        except SerializationError as error:
            stored = data if isinstance(data, bytes) else raw
            body = Undecodable(stored or b"", str(error))
        return mailbox._kind(body, number, delivery, mailbox)

    def refuse_if_closed(self) -> None:
        if self.closed:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise MailboxClosedError(
            f"mailbox {self.name!r} was closed: open it again to send or receive"
        )


def no_target(to: str) -> InvalidParameterError:
    """Return the error for a redrive to a queue that does not exist."""
    return InvalidParameterError("to", to, "the name of a queue that exists; create it first")


def user_attributes(attributes: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the user's attributes, without those of Pillarbox."""
    if not attributes:
        return _NO_ATTRIBUTES
    ours = limits.RESERVED_PREFIX
    return MappingProxyType(
        {name: v for name, v in attributes.items() if not name.startswith(ours)}
    )


def details_of(
    enqueued_ns: int,
    attributes: Mapping[str, str] | None,
    priority: int,
    group: str | None,
    dead_letter: DeadLetter | None,
) -> Details:
    """Return the details of a message; `attributes` includes those of Pillarbox."""
    ours = attributes or _NO_ATTRIBUTES
    return Details(
        as_datetime(enqueued_ns),
        user_attributes(attributes),
        priority,
        group,
        ours.get(REPLY_TO),
        ours.get(IN_REPLY_TO),
        dead_letter,
    )


def handle_of(message_id: bytes, token: bytes) -> str:
    """Return a displayable receipt handle that does not reveal the token; empty without one."""
    if not token:
        return ""
    return hashlib.blake2b(message_id, key=token, digest_size=16).hexdigest()


def settled(name: str, answers: list[bool], doubtful: bool) -> list[bool]:
    """Return the store's results; raise if a retry makes a False ambiguous."""
    if doubtful and not all(answers):
        raise UnknownOutcomeError(
            f"mailbox {name!r}: the connection was lost while {len(answers):,} deliveries were "
            f"settled, and {answers.count(False):,} of them are over now: by this call, or because "
            "their leases expired; check the queue if it matters"
        )
    return answers


def in_pages(items: Sequence[X], size: int) -> Iterator[Sequence[X]]:
    """Yield the items in order, in pages of at most `size`."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Return the user's message ids without duplicates."""
    if isinstance(ids, str):
        raise InvalidParameterError("ids", ids, "several message ids, not one str")
    return list(dict.fromkeys(limits.text("ids", each, 0) for each in ids))
