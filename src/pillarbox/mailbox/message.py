"""A message as its receiver sees it: an immutable typed body and one delivery's receipt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

from pillarbox import notebook
from pillarbox.core.errors import ReceiptHandleExpiredError

if TYPE_CHECKING:
    from pillarbox.mailbox.runner import Runnable
    from pillarbox.mailbox.verbs import Verbs

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_datetime(nanoseconds: int) -> datetime:
    """Return nanoseconds since the epoch as a `datetime` in UTC."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1_000)


class FailedDelivery(Struct, frozen=True):
    """One delivery in a dead letter's history."""

    received_at: datetime
    ended_at: datetime
    outcome: Literal["nacked", "expired", "rejected"]


class DeadLetter(Struct, frozen=True):
    """Why a message was dead-lettered, and its failed deliveries."""

    source: str
    reason: str
    died_at: datetime
    history: tuple[FailedDelivery, ...]

    @classmethod
    def of(
        cls, source: str, reason: str, died_ns: int, attempts: Iterable[tuple[int, int, Any]]
    ) -> DeadLetter:
        """Create it from the stored start, end and outcome of each delivery."""
        history = (FailedDelivery(as_datetime(a), as_datetime(b), how) for a, b, how in attempts)
        return cls(source, reason, as_datetime(died_ns), tuple(history))


class Undecodable(Struct, frozen=True):
    """Replaces a body that can't be decoded in messages that `peek` returns."""

    data: bytes
    error: str


class Details(Struct, frozen=True):
    """The properties of a message other than its body."""

    enqueued_at: datetime
    attributes: Mapping[str, str]
    priority: int
    group: str | None
    reply_to: str | None
    in_reply_to: str | None
    dead_letter: DeadLetter | None


class Delivered(Struct, Generic[T], frozen=True, eq=False, gc=False):
    """The base of `Message` and `AsyncMessage`. Only mailboxes create it.

    `gc=False`: it cannot be part of a reference cycle.
    """

    body: T
    """The body, decoded to the body type of the mailbox."""
    delivery_count: int
    """How often the message has been delivered; 1 on the first delivery."""
    _delivery: Any
    _mailbox: Any

    @property
    def id(self) -> str:
        """The id that `send` returned; the same for every delivery."""
        return self._verbs.message_id(self._delivery)

    @property
    def receipt_handle(self) -> str:
        """Identifies this delivery; empty for a message that `peek` returned."""
        return self._verbs.receipt_handle(self._delivery)

    @property
    def enqueued_at(self) -> datetime:
        """When the message was sent (UTC)."""
        return self._verbs.details(self._delivery).enqueued_at

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes that the sender set; read-only."""
        return self._verbs.details(self._delivery).attributes

    @property
    def priority(self) -> int:
        """The priority, 0 to 255; higher numbers are delivered first."""
        return self._verbs.details(self._delivery).priority

    @property
    def group(self) -> str | None:
        """The message group; messages of one group are delivered in order."""
        return self._verbs.details(self._delivery).group

    @property
    def reply_to(self) -> str | None:
        """The name of the mailbox that `reply` sends to."""
        return self._verbs.details(self._delivery).reply_to

    @property
    def in_reply_to(self) -> str | None:
        """The id of the request that this message replies to."""
        return self._verbs.details(self._delivery).in_reply_to

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Why the message was dead-lettered; None if it was not."""
        return self._verbs.details(self._delivery).dead_letter

    @property
    def _verbs(self) -> Verbs[Any, Any]:
        verbs: Verbs[Any, Any] = self._mailbox._verbs
        return verbs

    def _strictly(self, answer: bool, verb: str) -> bool:
        if answer:
            return True
        raise ReceiptHandleExpiredError(
            f"can't {verb} message {self.id}: this delivery (number {self.delivery_count}) is "
            "over, because its lease ran out or it was settled before; the message may be with "
            "another consumer by now, so drop what you did for it or make the work idempotent"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("id", self.id),
            ("body", repr(self.body)),
            ("delivery", self.delivery_count),
            ("priority", self.priority),
            ("enqueued at", self.enqueued_at),
            *self.attributes.items(),
        ]
        return notebook.table(type(self).__name__, rows)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(id={self.id!r}, body={self.body!r}, "
            f"delivery_count={self.delivery_count})"
        )


class Message(Delivered[T], Generic[T], frozen=True, eq=False, gc=False):
    """A received message, leased to you: acknowledge or return it before the lease expires.

    Each method returns False if the lease has ended; with `strict=True` it raises
    `ReceiptHandleExpiredError` instead.
    """

    def acknowledge(self, *, strict: bool = False) -> bool:
        """Delete the message: the work is done."""
        answer: bool = self._mailbox._acknowledge(self._delivery)
        return self._strictly(answer, "acknowledge") if strict else answer

    def nack(self, *, visibility_timeout: float = 0, strict: bool = False) -> bool:
        """Return the message for redelivery, now or after `visibility_timeout` seconds."""
        return self._settle(self._verbs.nack((self._delivery,), visibility_timeout), strict, "nack")

    def extend_visibility(self, timeout: float, *, strict: bool = False) -> bool:
        """Set the end of the lease to `timeout` seconds from now."""
        verb = self._verbs.extend((self._delivery,), timeout)
        return self._settle(verb, strict, "extend the lease of")

    def release(self, *, strict: bool = False) -> bool:
        """Return the message without counting the delivery."""
        return self._settle(self._verbs.release((self._delivery,)), strict, "release")

    def reject(self, reason: str, *, strict: bool = False) -> bool:
        """Dead-letter the message now; without a dead-letter queue, return it."""
        return self._settle(self._verbs.reject((self._delivery,), reason), strict, "reject")

    def reply(self, body: Any) -> str:
        """Send a reply to the mailbox named by `reply_to` and return the message id of the reply.

        The id is empty if the reply was dropped because its client has closed.
        """
        message_id: str = self._mailbox._run(self._verbs.reply(self.reply_to, self.id, body))
        return message_id

    def _settle(self, verb: Runnable[list[bool]], strict: bool, what: str) -> bool:
        answer: bool = self._mailbox._run(verb)[0]
        return self._strictly(answer, what) if strict else answer


class AsyncMessage(Delivered[T], Generic[T], frozen=True, eq=False, gc=False):
    """`Message` for asyncio: the same methods, as coroutines."""

    async def acknowledge(self, *, strict: bool = False) -> bool:
        """Delete the message: the work is done."""
        return await self._settle(self._verbs.acknowledge((self._delivery,)), strict, "acknowledge")

    async def nack(self, *, visibility_timeout: float = 0, strict: bool = False) -> bool:
        """Return the message for redelivery, now or after `visibility_timeout` seconds."""
        verb = self._verbs.nack((self._delivery,), visibility_timeout)
        return await self._settle(verb, strict, "nack")

    async def extend_visibility(self, timeout: float, *, strict: bool = False) -> bool:
        """Set the end of the lease to `timeout` seconds from now."""
        verb = self._verbs.extend((self._delivery,), timeout)
        return await self._settle(verb, strict, "extend the lease of")

    async def release(self, *, strict: bool = False) -> bool:
        """Return the message without counting the delivery."""
        return await self._settle(self._verbs.release((self._delivery,)), strict, "release")

    async def reject(self, reason: str, *, strict: bool = False) -> bool:
        """Dead-letter the message now; without a dead-letter queue, return it."""
        return await self._settle(self._verbs.reject((self._delivery,), reason), strict, "reject")

    async def reply(self, body: Any) -> str:
        """Send a reply to the mailbox named by `reply_to` and return the message id of the reply.

        The id is empty if the reply was dropped because its client has closed.
        """
        message_id: str = await self._mailbox._run(self._verbs.reply(self.reply_to, self.id, body))
        return message_id

    async def _settle(self, verb: Runnable[list[bool]], strict: bool, what: str) -> bool:
        answer: bool = (await self._mailbox._run(verb))[0]
        return self._strictly(answer, what) if strict else answer
