"""Sending: bodies to packed messages, and a session by which a repeated send is known."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from pillarbox.codec import Codec
from pillarbox.core import limits
from pillarbox.core.errors import MailboxFullError
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, answer, is_reply_queue
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.queue import RedisQueue, Settings
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.verbs import Outgoing, Verbs

T = TypeVar("T")

_DEDUPLICATION_US = limits.DEDUPLICATION_SECONDS * 1_000_000


class Session:
    """Who sends, so that a send that is tried again is known; one send at a time."""

    __slots__ = ("count", "key")

    def __init__(self, queue: RedisQueue) -> None:
        self.key = queue.keys.key("session:" + os.urandom(12).hex())
        self.count = 0


class Sender(Verbs[T, wire.Delivery], Generic[T]):
    """Puts messages in."""

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
        """Send packed messages that go the same way; `twin` is what a duplicate is known by."""
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
        self._sessions.append(session)  # not after an error: its call may still be on its way
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
        """For the next send, which no other uses meanwhile."""
        try:
            session = self._sessions.pop()
        except IndexError:  # every other is in use by another thread
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
        """Send `body` as the answer to a message."""
        data, noted = answer(in_reply_to, body)
        limits.body_bytes(data, self.max_body_bytes)
        ids = yield from self._send(Outgoing([data], attributes=noted))
        if is_reply_queue(self.queue.name):
            yield from self.expire()
        return ids[0]

    def expire(self) -> Verb[None]:
        """Let all end by itself if nothing happens for long: of a client that may be gone."""
        yield from self.queue.ask(self.queue.call("expire", IDLE_SECONDS_MAX))
