"""ReceiveMessage: leases at once what is there, or parks until something is.

A parked poll is a waiter of the queue's session: no task, no polling. If the client hangs up
before its answer was written, what it was given goes back to the front, uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, NamedTuple

from pillarbox.broker import shapes, translation
from pillarbox.broker.actions.messages import sequence_number
from pillarbox.broker.call import Call, Result
from pillarbox.broker.catalogue import BrokerQueue
from pillarbox.broker.errors import SqsError, invalid_value, no_such_queue, of_mailbox
from pillarbox.broker.http import Answer, Response
from pillarbox.broker.md5 import md5_of, md5_of_attributes
from pillarbox.broker.retention import expire
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Lease
from pillarbox.core.sqs_limits import RECEIVE_MESSAGES_MAX, VISIBILITY_SECONDS_MAX, WAIT_SECONDS_MAX
from pillarbox.mailbox.waiters import Owner

ATTEMPT_NS = 300 * SECOND_NS

SYSTEM_ATTRIBUTES = frozenset(
    (
        "All",
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    )
)


class Wanted(NamedTuple):
    """What is wanted beside the bodies."""

    system: frozenset[str]
    names: frozenset[str]
    prefixes: tuple[str, ...]
    everything: bool

    def has(self, name: str) -> bool:
        return self.everything or name in self.names or name.startswith(self.prefixes)


_EVERYTHING = ("All", "*", ".*")
_NOTHING = Wanted(frozenset(), frozenset(), (), everything=False)


def _wanted(ask: shapes.ReceiveMessage) -> Wanted:
    if not (ask.AttributeNames or ask.MessageSystemAttributeNames or ask.MessageAttributeNames):
        return _NOTHING
    system = frozenset((ask.AttributeNames or []) + (ask.MessageSystemAttributeNames or []))
    for name in system - SYSTEM_ATTRIBUTES:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")
    names = frozenset(ask.MessageAttributeNames or ())
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    everything = not names.isdisjoint(_EVERYTHING)
    return Wanted(system, names, prefixes, everything)


def _within(parameter: str, value: int | None, least: int, most: int, default: int) -> int:
    if value is None:
        return default
    if not least <= value <= most:
        reason = f"Must be between {least} and {most}, if provided."
        if parameter != "MaxNumberOfMessages":
            reason = f"Must be >= {least} and <= {most}, if provided."
        raise invalid_value(parameter, value, reason)
    return value


def receive_message(call: Call, ask: shapes.ReceiveMessage) -> Result | Answer:
    queue = call.queue(ask.QueueUrl)
    count = _within("MaxNumberOfMessages", ask.MaxNumberOfMessages, 1, RECEIVE_MESSAGES_MAX, 1)
    seconds = _within("VisibilityTimeout", ask.VisibilityTimeout, 0, VISIBILITY_SECONDS_MAX, -1)
    wait = _within("WaitTimeSeconds", ask.WaitTimeSeconds, 0, WAIT_SECONDS_MAX, -1)
    timeout = queue.visibility_ns if seconds < 0 else seconds * SECOND_NS
    wait_ns = queue.wait_ns if wait < 0 else wait * SECOND_NS
    wanted = _wanted(ask)
    attempt = _attempt(queue, ask.ReceiveRequestAttemptId)
    delivery = Delivery(call, queue, wanted, timeout)
    if attempt is not None:
        again = queue.attempts.again(attempt, queue, timeout)
        if again:
            return delivery.answer(again, is_new=False)
    upcoming, in_flight = queue.session.glance(count)
    expire(queue, upcoming)
    if in_flight >= call.broker.config.in_flight_max:
        if not wait_ns:
            raise SqsError("OverLimit", f"Too many messages are in flight in queue {queue.name}.")
        count = 0
    leases = queue.session.receive(call.broker, count, timeout, 0) if count else []
    if leases and attempt is not None:
        queue.attempts.keep(attempt, leases)
    if leases or not wait_ns or call.broker.closed:
        return delivery.answer(leases)
    return Poll(delivery, count, wait_ns, attempt).future


def _attempt(queue: BrokerQueue, name: str | None) -> str | None:
    if name is None:
        return None
    if not queue.fifo:
        reason = "The request include parameter that is not valid for this queue type."
        raise invalid_value("ReceiveRequestAttemptId", name, reason)
    if not name or len(name) > 128 or not name.isascii() or not name.isprintable():
        reason = "ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length."  # noqa: E501
        raise invalid_value("ReceiveRequestAttemptId", name, reason)
    return name


class Delivery:
    """How leases become the answer of one call."""

    __slots__ = ("call", "queue", "timeout", "wanted")

    def __init__(self, call: Call, queue: BrokerQueue, wanted: Wanted, timeout: int) -> None:
        self.call = call
        self.queue = queue
        self.wanted = wanted
        self.timeout = timeout

    def answer(self, leases: Sequence[Lease], *, is_new: bool = True) -> Answer:
        if not leases:
            return self.call.answer({})
        if is_new:
            self.call.broker.metrics.delivered(leases)
        try:
            bodies = self.queue.session.bodies([lease.record for lease in leases], wait=False)
        except BlockingIOError:
            return self._read(leases)
        return self._told(leases, bodies)

    async def _read(self, leases: Sequence[Lease]) -> Response:
        """The bodies have to be read from disk: others go on meanwhile."""
        session = self.queue.session
        try:
            bodies = await asyncio.to_thread(session.bodies, [lease.record for lease in leases])
        except MailboxError as error:
            self._unsent(leases)
            return self.call.fail(of_mailbox(error))
        except BaseException:  # the client hung up
            self._unsent(leases)
            raise
        return self._told(leases, bodies)

    def _told(self, leases: Sequence[Lease], bodies: Sequence[bytes | None]) -> Response:
        session = self.queue.session
        found = []
        for lease, body in zip(leases, bodies, strict=True):
            if body is None:  # lost to damage of the disk; it must not block the rest
                session.reject((lease,), "the body was lost")
            else:
                found.append(self._message(lease, body))
        result = {"Messages": found} if found else {}
        response = self.call.answer(result, lambda: self._unsent(leases))
        response.after = None  # a receive is not put on record before it is answered
        return response

    def _unsent(self, leases: Sequence[Lease]) -> None:
        """The client hung up before it could have read this."""
        self.queue.session.release(list(reversed(leases)), to_front=True)
        self.call.broker.written.clear()

    def _message(self, lease: Lease, body: bytes) -> dict[str, Any]:
        store = self.call.broker.store
        record = lease.record
        text, attributes = translation.unpack(body, record.attributes, record.priority)
        message: dict[str, Any] = {
            "MessageId": store.message_id(lease.record.key),
            "ReceiptHandle": store.handle(self.queue.session.queue, lease),
            "MD5OfBody": md5_of(text.encode()),
            "Body": text,
        }
        wanted = self.wanted
        if wanted.system:
            message["Attributes"] = self._system(lease)
        chosen = {name: attributes[name] for name in attributes if wanted.has(name)}
        if chosen:
            message["MD5OfMessageAttributes"] = md5_of_attributes(chosen)
            message["MessageAttributes"] = {
                n: translation.on_wire(chosen[n]) for n in sorted(chosen)
            }
        return message

    def _system(self, lease: Lease) -> dict[str, str]:
        record, extra = lease.record, lease.extra
        broker = self.call.broker
        epoch = broker.store.clock.epoch_ns
        first = extra.attempts[0].leased_at if extra and extra.attempts else lease.leased_at
        noted = record.attributes or {}
        known: dict[str, str | None] = {
            "SenderId": noted.get(translation.SENDER_NOTE, broker.config.account),
            "SentTimestamp": _milliseconds((record.key << 1) + epoch),
            "ApproximateReceiveCount": str(lease.number),
            "ApproximateFirstReceiveTimestamp": _milliseconds(first + epoch),
            "AWSTraceHeader": noted.get(translation.TRACE_NOTE),
            "MessageGroupId": noted.get(translation.GROUP_NOTE),
        }
        if extra is not None:
            if extra.group is not None:
                known["MessageGroupId"] = extra.group
                if self.queue.fifo:
                    known["SequenceNumber"] = sequence_number(record.key)
            known["MessageDeduplicationId"] = extra.deduplication
            if extra.death is not None:
                known["DeadLetterQueueSourceArn"] = broker.catalogue.arn(extra.death.source)
        system = self.wanted.system
        return {
            name: value
            for name, value in known.items()
            if value is not None and ("All" in system or name in system)
        }


def _milliseconds(nanoseconds: int) -> str:
    return str(nanoseconds // 1_000_000)


class Poll:
    """A parked receive: a waiter of the session whose end is the answer."""

    __slots__ = ("_attempt", "_delivery", "_reading", "_ring_off", "count", "future", "leases", "owner", "timeout")  # fmt: skip  # noqa: E501

    def __init__(self, delivery: Delivery, count: int, wait_ns: int, attempt: str | None) -> None:
        broker = delivery.call.broker
        self.owner: Owner = broker
        self.count = count
        self.timeout = delivery.timeout
        self.leases: list[Lease] | None = None
        self._delivery = delivery
        self._attempt = attempt
        self._reading: asyncio.Future[Response] | None = None
        self.future: asyncio.Future[Response] = broker.loop.create_future()
        self.future.add_done_callback(self._over)
        clock = broker.store.clock
        self._ring_off: Callable[[], object] = clock.call_at(
            clock.now() + wait_ns, self.finish, broker.loop
        )
        broker.metrics.parked += 1
        if count:
            delivery.queue.session.enter(self)

    def wake(self) -> bool:
        """Called by whoever made a message ready, with the store's lock held."""
        broker = self._delivery.call.broker
        try:
            if get_ident() == broker.thread:
                broker.loop.call_soon(self.finish)
            else:
                broker.loop.call_soon_threadsafe(self.finish)
        except RuntimeError:  # the event loop is closed
            return False
        return True

    def finish(self) -> None:
        """Woken, or out of time."""
        if self.future.done() or self._reading is not None:
            return
        try:
            answer = self._answer()
        except MailboxError as error:  # the disk failed: whoever waits must be told
            answer = self._delivery.call.fail(of_mailbox(error))
        if isinstance(answer, Response):
            self.future.set_result(answer)
        else:
            self._reading = asyncio.ensure_future(answer)
            self._reading.add_done_callback(self._read)

    def _answer(self) -> Answer:
        delivery = self._delivery
        leases = delivery.queue.session.leave(self)
        if leases and self._attempt is not None:
            delivery.queue.attempts.keep(self._attempt, leases)
        call = delivery.call
        if call.broker.store.sessions.get(delivery.queue.name) is not delivery.queue.session:
            return call.fail(no_such_queue())
        return delivery.answer(leases)

    def _read(self, reading: asyncio.Future[Response]) -> None:
        if self.future.done() or reading.cancelled():
            return
        error = reading.exception()
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(reading.result())

    def _over(self, future: asyncio.Future[Response]) -> None:
        self._ring_off()
        self._delivery.call.broker.metrics.parked -= 1
        if self._reading is not None:
            self._reading.cancel()
        if future.cancelled():  # the client hung up
            self._delivery.queue.session.give_up(self)
