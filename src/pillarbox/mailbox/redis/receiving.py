"""Receiving: a claim, a sleep while there is nothing, and bodies that decode or not.

A body that does not decode is never lost: it is logged, and dead-lettered by policy.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

from pillarbox.core.errors import MailboxError, MailboxFullError, SerializationError
from pillarbox.logger import logger
from pillarbox.mailbox.answers import quoted
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.sending import Sender
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.verbs import Body

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

    def _claim(
        self, count: int, lease: int, till: int, attempt: str | None = None
    ) -> Verb[Claim | None]:
        """Lease what is ready, or becomes so until `till` (less than zero: for how long).

        The same `attempt` gets the same messages again while it holds them.
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
                yield from self._carry()
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
        call.undo = partial(self._give_back, b"")
        call.stop = lambda: self.closed
        yield call
        if self.closed:
            yield from self.queue.ask(self.queue.call("tick", 0))  # who was to be woken for us
        return self.closed

    def _carry(self) -> Verb[None]:
        """Dead letters whose queue can't take them now wait; they hold up no receive."""
        try:
            yield from self.queue.carry()
        except MailboxError as error:
            logger.warning("dead letters wait", mailbox=self.name, error=str(error))

    def _carry_while_held(self, token: bytes, reply: list[Any]) -> Verb[None]:
        try:
            yield from self._carry()
        except asyncio.CancelledError:
            yield from self._give_back(token, reply)
            raise

    def _give_back(self, token: bytes, reply: Any) -> Verb[None]:
        """Undo a claim that nobody saw, and pass on a wake-up that nobody heard."""
        if isinstance(reply, list) and len(reply) > 1 and isinstance(reply[1], list):
            theirs = reply[5] if len(reply) > 5 else token
            last_first = reversed(reply[1][::2])  # each is put before the one before it
            pairs = [part for each in last_first for part in (each, theirs)]
            yield from self.queue.ask(self.queue.call("release", "1", *pairs))
        yield from self.queue.ask(self.queue.call("tick", 0))

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
        """The head of a packed message, and its body as this mailbox reads it."""
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
        value: bytes,
        state: bytes | None,
        extra: int,
        mailbox: Any,
    ) -> Any:
        """A message that is looked at, not held."""
        number = wire.deliveries_in(state) + extra
        head, data = self._split(value)
        delivery = wire.Delivery(message_id, b"", number, head, score, state)
        return self.peeked(mailbox, delivery, number, data, value)
