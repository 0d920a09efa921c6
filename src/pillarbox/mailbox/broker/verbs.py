"""The verbs of a mailbox on a broker: each sends one or a few commands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from pillarbox.codec import Codec
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.answers import answer, dropped, is_reply_queue, quoted
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.broker.address import Address, address_of
from pillarbox.mailbox.broker.connection import Call
from pillarbox.mailbox.broker.errors import QueueNotFoundError
from pillarbox.mailbox.broker.wire import BATCH_MAX, Command, Declare, Delivery, microseconds
from pillarbox.mailbox.message import DeadLetter, Details
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.runner import Interrupted, Verb
from pillarbox.mailbox.store import no_queue
from pillarbox.mailbox.verbs import Outgoing, Verbs, Where, details_of, in_pages

T = TypeVar("T")

PART = 10_000  # messages moved or deleted per request, so that each is quick
_PAGE = 1_000  # messages peeked at per request


class BrokerVerbs(Verbs[T, Delivery], Generic[T]):
    """The verbs of one mailbox object."""

    def __init__(self, name: str, codec: Codec[T], address: Address, declaration: Declare) -> None:
        super().__init__(name, codec)
        self.address = address
        self.where = address.origin
        self._declaration = declaration
        self._declared_at = ""  # instance id of the broker
        self._dead: str | None = None

    @property
    def identity(self) -> object:
        return self.address, self.name

    def open(self) -> Verb[None]:
        try:
            declared = yield Call(self.name, self._declaration)
        except QueueNotFoundError as error:  # create=False
            raise no_queue(self.name) from error
        self._declared_at = declared.instance
        self._dead = declared.dead_letters

    def dead_letters(self) -> BrokerVerbs[T] | None:
        if self._dead is None:
            return None
        return BrokerVerbs(self._dead, self.codec, self.address, Declare())

    def _ask(self, command: Command) -> Verb[Any]:
        """Run a command. If a restarted broker lost the queue, declare it again."""
        call = Call(self.name, command, self)
        try:
            return (yield call)
        except QueueNotFoundError as error:
            if error.instance == self._declared_at:  # same broker: the queue was deleted on purpose
                raise
        yield from self.open()
        return (yield call)

    # -- sending and receiving -----------------------------------------------------------------

    def _send(self, sent: Outgoing) -> Verb[list[str]]:
        if len(sent.bodies) > BATCH_MAX:
            raise _too_many("bodies", sent.bodies)
        options = sent.priority, microseconds(sent.delay), sent.attributes
        return self._ask(wire.Send(sent.bodies, *options, sent.group, sent.deduplication_id))

    def _receive(self, mailbox: Any, count: int, timeout: int, wait: int) -> Verb[list[Any]]:
        until = time.monotonic_ns() + wait
        while True:
            command = wire.Receive(count, microseconds(timeout), microseconds(wait))
            try:
                deliveries = yield from self._ask(command)
            except Interrupted:
                return []
            bodies = [self._body(delivery) for delivery in deliveries]
            numbers = [delivery.number for delivery in deliveries]
            messages = yield from self.received(mailbox, deliveries, numbers, bodies)
            if messages or not deliveries:
                return messages
            wait = max(0, until - time.monotonic_ns()) if wait else 0

    def _body(self, delivery: Delivery) -> bytes | None:
        body = delivery.body
        if self.reads_json and delivery.attributes and body is not None:
            return quoted(body, delivery.attributes)
        return body

    def _seen(self, delivery: Delivery, mailbox: Any) -> Any:
        """Return a peeked message."""
        return self.peeked(mailbox, delivery, delivery.number, self._body(delivery))

    # -- settling ------------------------------------------------------------------------------

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Verb[list[bool]]:
        return self._ask(wire.Acknowledge(_handles(deliveries)))

    def _nack(self, deliveries: Sequence[Delivery], delay: int) -> Verb[list[bool]]:
        return self._ask(wire.Nack(_handles(deliveries), microseconds(delay)))

    def _extend(self, deliveries: Sequence[Delivery], timeout: int) -> Verb[list[bool]]:
        return self._ask(wire.Extend(_handles(deliveries), microseconds(timeout)))

    def release(self, deliveries: Sequence[Delivery]) -> Verb[list[bool]]:
        return self._ask(wire.Release(_handles(deliveries)))

    def _reject(self, deliveries: Sequence[Delivery], reason: str) -> Verb[list[bool]]:
        return self._ask(wire.Reject(_handles(deliveries), reason))

    # -- the queue as a whole ------------------------------------------------------------------

    def _purge(self) -> Verb[int]:
        return self._ask(wire.Purge())

    def stats(self) -> Verb[Stats]:
        ready, scheduled, in_flight, dead, age = yield from self._ask(wire.Tally())
        seconds = None if age is None else age / limits.SECOND_NS
        return Stats(ready, scheduled, in_flight, dead, seconds)

    def _peek(self, mailbox: Any, count: int, state: State) -> Verb[list[Any]]:
        found = yield from self._ask(wire.Peek(state, count))
        return [self._seen(each, mailbox) for each in found]

    def _delete(self, ids: list[str]) -> Verb[int]:
        total = 0
        for some in in_pages(ids, PART):
            total += yield from self._ask(wire.Delete(list(some)))
        return total

    def _redrive(
        self, mailbox: Any, ids: list[str] | None, where: Where | None, to: str | None
    ) -> Verb[int]:
        if where is not None:
            ids = yield from self._matching(mailbox, ids, where)
        if ids is None:
            return (yield from self._redrive_all(to))
        total = 0
        for some in in_pages(ids, PART):
            total += yield from self._ask(wire.Redrive(list(some), to))
        return total

    def _redrive_all(self, to: str | None) -> Verb[int]:
        """Redrive in parts the messages that are ready at the start, not later arrivals."""
        total = skip = 0
        left: int | None = None
        while left is None or left > 0:
            limit = PART if left is None else min(PART, left)
            part: wire.Moved = yield from self._ask(wire.Redrive(None, to, limit, skip))
            examined = part.moved + part.stay
            left = part.left if left is None else left - examined
            total += part.moved
            skip += part.stay
            if not examined:  # other consumers took the rest
                break
        return total

    def _matching(self, mailbox: Any, ids: list[str] | None, where: Where) -> Verb[list[str]]:
        """Return the ids of messages that are ready at the start, in `ids`, and match `where`."""
        wanted = None if ids is None else set(ids)
        matching: dict[str, None] = {}
        known: set[str] = set()
        left, skip = (yield from self._ask(wire.Tally()))[0], 0
        while left > 0:
            page = yield from self._ask(wire.Peek("ready", min(_PAGE, left), skip))
            if not page:
                break
            fresh = [each for each in page if each.id not in known]
            known.update(each.id for each in page)
            for each in fresh:
                if (wanted is None or each.id in wanted) and where(self._seen(each, mailbox)):
                    matching[each.id] = None
            left, skip = left - len(page), skip + len(page)
        return list(matching)

    # -- replies -------------------------------------------------------------------------------

    def _reply(self, to: str, in_reply_to: str, body: Any) -> Verb[str]:
        name = self._reply_queue(to)
        data, noted = answer(in_reply_to, body)
        limits.body_bytes(data, self.max_body_bytes)
        call = Call(name, wire.Send([data], attributes=noted))
        try:
            return str((yield call)[0])
        except QueueNotFoundError:
            if is_reply_queue(name):  # only a client creates it, and it has closed
                return dropped(name, in_reply_to)
        yield Call(name, Declare())
        return str((yield call)[0])

    def _reply_queue(self, reply_to: str) -> str:
        """Return the name of the reply queue; SQS users may give its URL."""
        if "://" in reply_to:
            address, name = address_of(reply_to.removeprefix("sqs+"))
            if address.authority == self.address.authority:
                reply_to = name
        return limits.queue_name(reply_to, "reply_to")

    def keep_for_answers(self) -> Verb[None]:
        return self.open()

    def delete_queue(self) -> Verb[None]:
        yield Call(self.name, wire.Drop())

    # -- message properties --------------------------------------------------------------------

    def message_id(self, delivery: Delivery) -> str:
        return delivery.id

    def receipt_handle(self, delivery: Delivery) -> str:
        return delivery.handle

    def details(self, delivery: Delivery) -> Details:
        died, letter = delivery.died, None
        if died is not None:
            letter = DeadLetter.of(died.source, died.reason, died.died_ns, died.attempts)
        about = delivery.priority, delivery.group
        return details_of(delivery.enqueued_ns, delivery.attributes, *about, letter)


def _handles(deliveries: Sequence[Delivery]) -> list[str]:
    if len(deliveries) > BATCH_MAX:
        raise _too_many("messages", deliveries)
    return [delivery.handle for delivery in deliveries]


def _too_many(parameter: str, items: Sequence[Any]) -> InvalidParameterError:
    allowed = f"at most {BATCH_MAX:,} in one batch"
    return InvalidParameterError(parameter, f"{len(items):,}", allowed)
