"""Sending: bodies to packed messages, and a session by which a repeated send is known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pillarbox.codec import QUICK_ERRORS
from pillarbox.core import limits
from pillarbox.core.errors import MailboxFullError
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, REPLY_TO, answer, is_reply_queue
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.opened import US_NS, Opened
from pillarbox.mailbox.redis.plan import Plan
from pillarbox.mailbox.redis.queue import RedisQueue

T = TypeVar("T")

_DEDUPLICATION_US = limits.DEDUPLICATION_SECONDS * 1_000_000


class _Session:
    """Who sends, so that a send that is tried again is known; one send at a time."""

    __slots__ = ("count", "key")

    def __init__(self, queue: RedisQueue) -> None:
        self.key = queue.place.key("session:" + os.urandom(12).hex())
        self.count = 0


class Sender(Opened[T], Generic[T]):
    """Puts messages in."""

    def __init__(self, queue: RedisQueue, body_type: Any, max_body_bytes: int) -> None:
        super().__init__(queue, body_type, max_body_bytes)
        self._sessions: list[_Session] = []
        self._ending = "-" + os.urandom(5).hex()

    def send(
        self,
        bodies: list[bytes],
        delay_seconds: float,
        priority: int,
        attributes: Mapping[str, str] | None,
        group: str | None,
        deduplication_id: str | None = None,
    ) -> Plan[list[str]]:
        """All of the encoded bodies, or none; their ids."""
        delay = limits.seconds("delay_seconds", delay_seconds, limits.DELAY_SECONDS_MAX)
        limits.priority(priority)
        if group is not None:
            limits.token("group", group)
        keys: tuple[bytes, ...] = ()
        if deduplication_id is not None:
            limits.token("deduplication_id", deduplication_id)
            keys = (self.queue.place.key(f"twin:{deduplication_id}"),)
        if not bodies:
            return []
        head = wire.head_of(attributes)
        session = self._session()
        session.count += 1
        options = (session.count, self._ending, priority, -(-delay // US_NS), group or b"")
        values = [head + body for body in bodies]
        call = self.queue.call(
            "send", *options, _DEDUPLICATION_US, *values, keys=(session.key, *keys)
        )
        answer = yield from self.queue.ask(self.queue.confirmed(call))
        self._sessions.append(session)  # not after an error: its call may still be on its way
        return self._ids(answer, len(bodies))

    def _session(self) -> _Session:
        try:
            return self._sessions.pop()
        except IndexError:  # every other is in use by another thread
            return _Session(self.queue)

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

    def packed(self, bodies: list[T]) -> list[bytes]:
        try:
            data = list(map(self._pack, bodies))
        except QUICK_ERRORS:
            data = list(map(self._encode, bodies))
        if data:
            limits.body_bytes(max(data, key=len), self.max_body_bytes)
        return data

    def attributes(
        self, attributes: Mapping[str, str] | None, reply_to: str | None, body_bytes: int
    ) -> dict[str, str] | None:
        """What travels beside a body of this size: the attributes, and where to answer."""
        if attributes is None and reply_to is None:
            return None
        checked = limits.user_attributes(attributes)
        if reply_to is not None:
            checked[REPLY_TO] = limits.text("reply_to", reply_to)
        parameter = "attributes" if attributes else "reply_to"
        limits.message_bytes(parameter, body_bytes, checked, self.max_body_bytes)
        return checked

    def answer(self, in_reply_to: str, body: Any) -> Plan[str]:
        """Send `body` as the answer to a message."""
        data, noted = answer(in_reply_to, body)
        limits.body_bytes(data, self.max_body_bytes)
        ids = yield from self.send([data], 0, 0, noted, None)
        if is_reply_queue(self.queue.name):
            yield from self.expire()
        return ids[0]

    def expire(self) -> Plan[None]:
        """Let all end by itself if nothing happens for long: of a client that may be gone."""
        yield from self.queue.ask(self.queue.call("expire", IDLE_SECONDS_MAX))
