"""From leases to messages: what a mailbox reads off its queue.

A body is decoded after the store's lock was given back. One that does not decode is never
lost: it is logged, and dead-lettered where there is a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, Generic, TypeVar

from pillarbox.codec import QUICK_ERRORS
from pillarbox.core.errors import SerializationError
from pillarbox.core.queue import Extra, Lease, Record
from pillarbox.logger import logger
from pillarbox.mailbox.answers import IN_REPLY_TO, REPLY_TO, quoted
from pillarbox.mailbox.message import (
    DeadLetter,
    Details,
    FailedDelivery,
    Message,
    Undecodable,
    as_datetime,
)
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.verbs import user_attributes

T = TypeVar("T")


class Reader(Generic[T]):
    """The half of a local mailbox that makes messages, and answers what they ask of it."""

    _kind: Any = Message  # of the messages that `receive` makes
    _desk: QueueSession
    _store: Store
    _reads_json: bool
    _decode: Callable[[bytes], T]
    _unpack: Callable[[bytes], T]

    def _open(self, leases: Sequence[Lease], kind: Any, backend: object) -> list[Any]:
        """The messages of these leases; those that don't decode are seen to and left out."""
        bodies: list[Any] = self._bodies([lease.record for lease in leases])
        numbers = [lease.number for lease in leases]
        try:
            return list(map(kind, map(self._unpack, bodies), numbers, leases, repeat(backend)))
        except QUICK_ERRORS:  # some body does not decode: one by one, then
            messages = []
        for lease, data in zip(leases, bodies, strict=True):
            try:
                body = self._decoded(data)
            except SerializationError as error:
                self._bury_undecodable(lease, error)
            else:
                messages.append(kind(body, lease.number, lease, backend))
        return messages

    def _bodies(self, records: Sequence[Record]) -> list[bytes | None]:
        """The bodies of these messages, None for one that was lost; as this mailbox reads them."""
        bodies = self._desk.bodies(records)
        if self._reads_json:
            for place, record in enumerate(records):
                body = bodies[place]
                if record.attributes and body is not None:
                    bodies[place] = quoted(body, record.attributes)
        return bodies

    def _decoded(self, data: bytes | None) -> T:
        if data is None:
            raise SerializationError("the body was lost to damage of the disk")
        return self._decode(data)

    def _bury_undecodable(self, lease: Lease, error: SerializationError) -> None:
        logger.error(
            "message body does not decode",
            mailbox=self._desk.queue.name,
            message_id=self._message_id(lease),
            error=str(error),
            dead_lettered=self._desk.dead is not None,
        )
        if self._desk.dead is not None:
            self._desk.reject((lease,), f"undecodable: {error}")

    def _seen(self, record: Record, count: int, kind: Any, backend: object) -> Any:
        """A message that is looked at, not held: its receipt has ended before it began."""
        (data,) = self._bodies([record])
        try:
            body: T | Undecodable = self._decoded(data)
        except SerializationError as error:
            body = Undecodable(data or b"", str(error))
        return kind(body, count, Lease(record, count, 0, 0, 0, record.extra), backend)

    def _message_id(self, lease: Lease) -> str:
        return self._store.message_id(lease.record.key)

    def _receipt_handle(self, lease: Lease) -> str:
        return self._store.handle(self._desk.queue, lease) if lease.leased_at else ""

    def _details(self, lease: Lease) -> Details:
        record = lease.record
        noted = record.attributes
        return Details(
            enqueued_at=self._time(record.key << 1),
            attributes=user_attributes(noted),
            priority=record.priority,
            group=lease.extra.group if lease.extra is not None else None,
            reply_to=noted.get(REPLY_TO) if noted else None,
            in_reply_to=noted.get(IN_REPLY_TO) if noted else None,
            dead_letter=self._dead_letter(lease.extra) if lease.extra is not None else None,
        )

    def _dead_letter(self, extra: Extra) -> DeadLetter | None:
        if extra.death is None:
            return None
        history = (
            FailedDelivery(self._time(a.leased_at), self._time(a.ended_at), a.outcome)
            for a in extra.attempts
        )
        died_at = self._time(extra.death.died_at)
        return DeadLetter(extra.death.source, extra.death.reason, died_at, tuple(history))

    def _time(self, nanoseconds: int) -> datetime:
        return as_datetime(nanoseconds + self._store.clock.epoch_ns)
