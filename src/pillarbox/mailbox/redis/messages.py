"""Sends messages to a queue and receives them.

A send belongs to a session, by which the server recognises a repeated send. A receive claims
messages, and blocks while there are none. A body that does not decode is logged, and dead-lettered
by policy.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

from pillarbox.codec import Codec
from pillarbox.core import limits
from pillarbox.core.errors import MailboxError, MailboxFullError, SerializationError
from pillarbox.logger import logger
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, answer, is_reply_queue, quoted
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.queue import RedisQueue, Settings
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.shared import StaleQueueError
from pillarbox.mailbox.verbs import Body, Outgoing, Verbs

T = TypeVar("T")

_DEDUPLICATION_US = limits.DEDUPLICATION_SECONDS * 1_000_000
_TOO_MANY = -2  # result of a claim if the limit of messages in flight is reached
_NAP_US = 1_000  # the clocks of two masters may differ


class Session:
    """A sender's session, by which a repeated send is recognised; one send at a time."""

    __slots__ = ("count", "key")

    def __init__(self, queue: RedisQueue) -> None:
        self.key = queue.keys.key("session:" + os.urandom(12).hex())
        self.count = 0


class Claim(NamedTuple):
    """Messages that were leased together."""

    now: int
    token: bytes
    taken: list[bytes]  # ids, each with its score
    values: list[Any]  # None for a message whose body is missing
    states: list[Any]
    till: int  # when the wait ends


class MessageVerbs(Verbs[T, wire.Delivery], Generic[T]):
    """The verbs that send, receive and peek."""

    in_flight_max: int | None = None

    def __init__(self, queue: RedisQueue, codec: Codec[T], max_body_bytes: int) -> None:
        super().__init__(queue.name, codec, max_body_bytes)
        self.queue = queue
        self.settings: Settings | None = None
        self._sessions: list[Session] = []
        self._ending = "-" + os.urandom(5).hex()

    def _send(self, sent: Outgoing) -> Verb[list[str]]:
        if not sent.bodies:
            return []
        head = wire.head_of(sent.attributes) if sent.attributes else wire.PLAIN
        values = list(map(head.__add__, sent.bodies))
        twin = sent.deduplication_id
        return (yield from self.send_packed(values, sent.priority, sent.delay, sent.group, twin))

    def send_packed(
        self, values: list[bytes], priority: int, delay: int, group: str | None, twin: str | None
    ) -> Verb[list[str]]:
        """Send packed messages with the same options; `twin` is their deduplication key."""
        session = self._session()
        keys = [session.key]
        if twin is not None:
            keys.append(self.queue.keys.key(f"twin:{twin}"))
        call = self.queue.call(
            "send",
            *(session.count, self._ending, priority, wire.microseconds(delay)),
            *(group or b"", _DEDUPLICATION_US, *values),
            keys=tuple(keys),
            confirm=True,
        )
        answer = yield from self.queue.ask(call)
        self._sessions.append(session)  # not after an error: its call may still arrive
        return self._ids(answer, len(values))

    def send_each(
        self, messages: Sequence[tuple[bytes, str, str]], priority: int, delay: int
    ) -> Verb[list[str]]:
        """Send packed messages, each with its own group and deduplication id."""
        session = self._session()
        twins = (self.queue.keys.key(f"twin:{twin}") for _, _, twin in messages)
        call = self.queue.call(
            "send_each",
            *(session.count, self._ending, priority, wire.microseconds(delay), _DEDUPLICATION_US),
            *(part for value, group, _ in messages for part in (group, value)),
            keys=(session.key, *twins),
            confirm=True,
        )
        answer = yield from self.queue.ask(call)
        self._sessions.append(session)
        if isinstance(answer, int):
            return self._ids(answer, len(messages))
        ids: list[str] = answer.decode().split(" ")
        return ids

    def _session(self) -> Session:
        """Return a session that no other send is using."""
        try:
            session = self._sessions.pop()
        except IndexError:  # all others are in use by other threads
            session = Session(self.queue)
        session.count += 1
        return session

    def _ids(self, answer: bytes | int, count: int) -> list[str]:
        if isinstance(answer, int):
            capacity = self.settings.capacity if self.settings else None
            raise MailboxFullError(
                f"mailbox {self.queue.name!r} holds {answer:,} of {capacity or answer:,} messages "
                f"and can't take {count:,} more: receive and acknowledge some, or raise capacity"
            )
        if answer[:1] == b"=":
            return [answer[1:].decode()]
        stamp, first = answer.decode().split(" ")
        number = int(first)
        ending = self._ending
        return [f"{stamp}-{n:011x}{ending}" for n in range(number, number + count)]

    def answer(self, in_reply_to: str, body: Any) -> Verb[str]:
        """Send `body` as the reply to a message."""
        data, noted = answer(in_reply_to, body)
        limits.body_bytes(data, self.max_body_bytes)
        ids = yield from self._send(Outgoing([data], attributes=noted))
        if is_reply_queue(self.queue.name):
            yield from self.expire()
        return ids[0]

    def expire(self) -> Verb[None]:
        """Renew the expiry of a reply queue, which ends if its client is gone."""
        yield from self.queue.run("expire", IDLE_SECONDS_MAX)

    # -- receiving ------------------------------------------------------------------------------

    def _receive(self, mailbox: Any, count: int, timeout: int, wait: int) -> Verb[list[Any]]:
        till = -wire.microseconds(wait)
        while True:
            claim = yield from self._claim(count, wire.microseconds(timeout), till)
            if claim is None:
                return []
            messages = yield from self._messages(claim, mailbox)
            if messages:
                return messages
            till = claim.till

    def _claim(
        self, count: int, lease: int, till: int, attempt: str | None = None
    ) -> Verb[Claim | None]:
        """Lease messages that are ready, or become so until `till` (negative: for how long).

        Repeating an `attempt` returns the same messages while it holds them.
        """
        watch = b""
        queue = self.queue
        limit = () if self.in_flight_max is None else (self.in_flight_max,)
        keys = () if attempt is None else (queue.keys.key(f"attempt:{attempt}"),)
        while True:
            token = os.urandom(16)
            call = queue.call("claim", count, lease, token, till, watch, *limit, keys=keys)
            call.undo = partial(self._give_back, token)
            now, *found = yield from queue.ask(call)
            if till < 0:
                till = now - till
            if isinstance(found[0], list):
                if found[3]:
                    yield from self._carry_while_held(token, [now, *found])
                theirs = found[4] if len(found) > 4 else token
                return Claim(now, theirs, found[0], found[1], found[2], till)
            sleep = found[0]
            if sleep == _TOO_MANY:
                raise MailboxFullError(f"too many messages of {queue.name!r} are in flight")
            if sleep < 0:
                continue
            watch, sources, on_the_way = found[1:]
            if on_the_way:
                yield from self._move_outbox()
            if sources:
                arrived, following = yield from queue.collect(sources)
                if arrived:
                    continue
                if following:
                    sleep = min(sleep, max(following - now, _NAP_US))
            if sleep == 0 or (yield from self._block(sleep)):
                return None

    def _block(self, microseconds: int) -> Verb[bool]:
        """Block until messages may be ready; return whether the mailbox was closed meanwhile."""
        seconds = max(microseconds / 1_000_000, 0.001)
        call = self.queue.command("BLPOP", self.queue.keys.key("wake"), f"{seconds:.6f}")
        call.block_seconds = seconds
        call.undo = partial(self._give_back, b"")
        call.stop = lambda: self.closed
        yield call
        if self.closed:
            # Wake another receiver instead of us.
            yield from self.queue.run("tick", 0)
        return self.closed

    def _move_outbox(self) -> Verb[None]:
        """Move dead letters from the outbox; on failure leave them there and let receives go on."""
        try:
            yield from self.queue.carry()
        except (MailboxError, StaleQueueError) as error:
            logger.warning("dead letters not moved yet", mailbox=self.name, error=str(error))

    def _carry_while_held(self, token: bytes, reply: list[Any]) -> Verb[None]:
        try:
            yield from self._move_outbox()
        except asyncio.CancelledError:
            yield from self._give_back(token, reply)
            raise

    def _give_back(self, token: bytes, reply: Any) -> Verb[None]:
        """Return messages of a claim whose caller was cancelled, and pass its wake-up on."""
        with suppress(StaleQueueError):  # then their leases expire
            if isinstance(reply, list) and len(reply) > 1 and isinstance(reply[1], list):
                theirs = reply[5] if len(reply) > 5 else token
                last_first = reversed(reply[1][::2])  # each goes in front of the one before it
                pairs = [part for each in last_first for part in (each, theirs)]
                yield from self.queue.run("release", "1", *pairs)
            yield from self.queue.run("tick", 0)

    def _messages(self, claim: Claim, mailbox: Any) -> Verb[list[Any]]:
        _, token, taken, values, states, _ = claim
        numbers = [1 if raw is None else wire.deliveries_in(raw) + 1 for raw in states]
        heads, bodies = [], []
        for value in values:
            head, body = self._split(value)
            heads.append(head)
            bodies.append(body)
        tokens = repeat(token)
        delivered = map(wire.Delivery, taken[::2], tokens, numbers, heads, taken[1::2], states)
        return self.received(mailbox, list(delivered), numbers, bodies)

    def _split(self, value: bytes | None) -> tuple[bytes, Body]:
        """Return the header of a packed message, and its body in the form this mailbox decodes."""
        try:
            head, body = wire.split(value)
        except SerializationError as error:
            return wire.PLAIN, error
        if self.reads_json and len(head) > 1:
            body = quoted(body, wire.attributes_in(head))
        return head, body

    def has_dead_letters(self) -> Verb[bool]:
        self.settings = yield from self.queue.declare()
        return self.settings.dead is not None

    def _seen(
        self,
        message_id: bytes,
        score: bytes,
        value: bytes | None,
        state: bytes | None,
        extra: int,
        mailbox: Any,
    ) -> Any:
        """Return a peeked message."""
        number = wire.deliveries_in(state) + extra
        head, data = self._split(value)
        delivery = wire.Delivery(message_id, b"", number, head, score, state)
        return self.peeked(mailbox, delivery, number, data, value)
