"""Receiving: a claim, a sleep while there is nothing, and bodies that decode or not.

A body that does not decode is never lost: it is logged, and dead-lettered by policy.
"""

from __future__ import annotations

import os
from typing import Any, Generic, NamedTuple, TypeVar

from pillarbox.codec import QUICK_ERRORS
from pillarbox.core.errors import MailboxFullError, SerializationError
from pillarbox.mailbox.answers import quoted
from pillarbox.mailbox.message import Undecodable
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.sending import Sender
from pillarbox.mailbox.runner import Verb

T = TypeVar("T")

_TOO_MANY = -2  # what a claim answers if a limit of what may be in flight is reached
_NAP_US = 1_000  # clocks of two masters may differ


class Claim(NamedTuple):
    """Messages that were leased together."""

    now: int
    token: bytes
    taken: list[bytes]  # ids, each with its score
    values: list[Any]  # None for a message whose body is gone
    states: list[Any]
    till: int  # until when the caller waits


class Receiver(Sender[T], Generic[T]):
    """Takes messages out, or looks at them."""

    in_flight_max: int | None = None

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

    def _claim(self, count: int, lease: int, till: int) -> Verb[Claim | None]:
        """Lease what is ready, or becomes so until `till` (less than zero: for how long)."""
        watch = b""
        queue = self.queue
        limit = () if self.in_flight_max is None else (self.in_flight_max,)
        while True:
            token = os.urandom(16)
            call = queue.call("claim", count, lease, token, till, watch, *limit)
            call.undo = self._give_back
            now, *found = yield from queue.ask(call)
            if till < 0:
                till = now - till
            if isinstance(found[0], list):
                if found[3]:
                    yield from queue.carry()
                return Claim(now, token, found[0], found[1], found[2], till)
            sleep = found[0]
            if sleep == _TOO_MANY:
                raise MailboxFullError(f"too many messages of {queue.name!r} are in flight")
            if sleep < 0:
                continue
            watch, sources, on_the_way = found[1:]
            if on_the_way:
                yield from queue.carry()
            if sources:
                arrived, following = yield from queue.collect(sources)
                if arrived:
                    continue
                if following:
                    sleep = min(sleep, max(following - now, _NAP_US))
            if sleep == 0 or (yield from self._slept(sleep)):
                return None

    def _slept(self, microseconds: int) -> Verb[bool]:
        """Sleep until there may be something; whether the mailbox was closed meanwhile."""
        seconds = max(microseconds / 1_000_000, 0.001)
        call = self.queue.command("BLPOP", self.queue.keys.key("wake"), f"{seconds:.6f}")
        call.block_seconds = seconds
        call.undo = self._give_back
        call.stop = lambda: self.closed
        yield call
        if self.closed:
            yield from self.queue.ask(self.queue.call("tick", 0))  # who was to be woken for us
        return self.closed

    def _give_back(self, reply: Any) -> Verb[None]:
        """Undo a claim that nobody saw, and pass on a wake-up that nobody heard."""
        if isinstance(reply, list) and len(reply) > 1 and isinstance(reply[1], list):
            ids = reply[1][::2]
            raw = yield self.queue.command("HMGET", self.queue.keys.key("states"), *ids)
            pairs = [(i, s[29:45]) for i, s in zip(ids, raw, strict=True) if s is not None]
            arguments = [part for pair in pairs for part in pair]
            yield from self.queue.ask(self.queue.call("release", "1", *_reversed_pairs(arguments)))
        yield from self.queue.ask(self.queue.call("tick", 0))

    def _messages(self, claim: Claim, mailbox: Any) -> Verb[list[Any]]:
        """The messages of these leases; those that don't decode are seen to and left out."""
        _, token, taken, values, states, _ = claim
        unpack, kind = self.codec.quick_decode, mailbox._kind
        messages = []
        for i, value in enumerate(values):
            state = states[i]
            number = 1 if state is None else wire.deliveries_in(state) + 1
            message_id = taken[2 * i]
            try:
                if value[:1] == wire.PLAIN:
                    head, body = wire.PLAIN, value[1:]
                else:
                    head, body = self._split(value)
                delivery = wire.Delivery(message_id, token, number, head, taken[2 * i + 1], state)
                messages.append(kind(unpack(body), number, delivery, mailbox))
            except (*QUICK_ERRORS, TypeError):
                yield from self._bury(message_id, token, value)
        return messages

    def _split(self, value: bytes) -> tuple[bytes, bytes]:
        """The head of a packed message, and its body as this mailbox reads it."""
        head, body = wire.split(value)
        if self.reads_json and len(head) > 1:
            body = quoted(body, wire.attributes_in(head))
        return head, body

    def _bury(self, message_id: bytes, token: bytes, value: bytes | None) -> Verb[None]:
        error: Exception = SerializationError("the body is gone: another has deleted it in Redis")
        try:
            if value is not None:
                self.codec.decode(self._split(value)[1])
        except SerializationError as failed:
            error = failed
        dead = self.settings is not None and self.settings.dead is not None
        shown_id = message_id.decode(errors="replace")
        self.log_undecodable(shown_id, error, dead_lettered=dead and value is not None)
        if value is not None:
            self.settings = yield from self.queue.declare()
            if self.settings.dead is not None:
                call = self.queue.call("reject", f"undecodable: {error}", message_id, token)
                _, on_the_way = yield from self.queue.ask(call)
                if on_the_way:
                    yield from self.queue.carry()

    def _seen(
        self,
        message_id: bytes,
        score: bytes,
        value: bytes,
        state: bytes | None,
        extra: int,
        mailbox: Any,
    ) -> Any:
        """A message that is looked at, not held."""
        number = wire.deliveries_in(state) + extra
        head = wire.PLAIN
        body: T | Undecodable
        try:
            head, data = self._split(value)
            body = self.body_or_undecodable(data)
        except SerializationError as error:
            body = Undecodable(value, str(error))
        delivery = wire.Delivery(message_id, b"", number, head, score, state)
        return mailbox._kind(body, number, delivery, mailbox)


def _reversed_pairs(arguments: list[Any]) -> list[Any]:
    """The last pair first: each is put before the one that was put before it."""
    pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
    return [part for pair in reversed(pairs) for part in pair]
