"""Mailboxes for tests: one that drops messages, one that records them, one that fails on demand.

Each is an in-memory mailbox with one change, so they otherwise behave like any mailbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar, Unpack

from msgspec import Struct

from pillarbox.core.errors import MailboxConnectionError
from pillarbox.core.limits import SECOND_NS
from pillarbox.mailbox.memory import InMemoryMailbox
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import ReceiveOptions

T = TypeVar("T")


class NullMailbox(InMemoryMailbox[T], Generic[T]):
    """Accepts and drops every message; a receive returns nothing.

    Examples:
        >>> box = NullMailbox("nowhere", str)
        >>> _ = box.send("gone")
        >>> box.receive(), box.approximate_count()
        ([], 0)
    """

    def send(self, body: T, **options: Any) -> str:
        message_id = super().send(body, **options)
        self._session.purge()
        return message_id

    def send_many(self, bodies: Iterable[T], **options: Any) -> list[str]:
        ids = super().send_many(bodies, **options)
        self._session.purge()
        return ids

    def receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[T]]:
        self._verbs.receive_options(**options)
        return []


class Sent(Struct, Generic[T], frozen=True):
    """A message sent to a `CollectingMailbox`."""

    id: str
    body: T
    options: Mapping[str, Any]


class CollectingMailbox(InMemoryMailbox[T], Generic[T]):
    """Records what was sent, for a test to check. Messages can also be received.

    Examples:
        >>> box = CollectingMailbox("orders", str)
        >>> _ = box.send("tea", priority=9)
        >>> [(sent.body, sent.options) for sent in box.sent]
        [('tea', {'priority': 9})]
    """

    @property
    def sent(self) -> list[Sent[T]]:
        """The sent messages, in order. Clear the list to start again."""
        sent: list[Sent[T]] = self.__dict__.setdefault("_sent", [])
        return sent

    @property
    def bodies(self) -> list[T]:
        """The bodies of the sent messages, in order."""
        return [sent.body for sent in self.sent]

    def send(self, body: T, **options: Any) -> str:
        message_id = super().send(body, **options)
        self.sent.append(Sent(message_id, body, options))
        return message_id

    def send_many(self, bodies: Iterable[T], **options: Any) -> list[str]:
        sent = list(bodies)
        ids = super().send_many(sent, **options)
        self.sent.extend(Sent(*pair, options) for pair in zip(ids, sent, strict=True))
        return ids


class FakeMailbox(InMemoryMailbox[T], Generic[T]):
    """Fails on demand: expired leases, a broken connection, undecodable bodies.

    Examples:
        >>> box = FakeMailbox("orders", str)
        >>> _ = box.send("tea")
        >>> (message,) = box.receive()
        >>> box.expire(message)
        >>> message.acknowledge()
        False
    """

    _broken: str | None = None
    _kind: Any = Message  # its methods call the mailbox, which may be broken

    def expire(self, message: Message[T]) -> None:
        """Expire the lease of this message: its handle is stale, and the message is ready again."""
        self._session.extend(self._deliveries([message]), 0)

    def break_connection(self, why: str = "connection refused") -> None:
        """Make every call raise `MailboxConnectionError` from now on."""
        self._broken = why

    def restore_connection(self) -> None:
        """Let calls succeed again. No message was lost in the meantime."""
        self._broken = None

    def inject(self, data: bytes, *, delay_seconds: float = 0, priority: int = 0) -> str:
        """Add a message with exactly these bytes as its body, decodable or not."""
        (key,) = self._session.send((data,), priority, round(delay_seconds * SECOND_NS))
        return self._store.message_id(key)

    def __getattribute__(self, name: str) -> Any:
        if name in _VERBS:
            broken = super().__getattribute__("_broken")
            if broken is not None:
                return partial(_fail, self.name, broken)
        return super().__getattribute__(name)


def _fail(name: str, why: str, *arguments: Any, **options: Any) -> NoReturn:
    raise MailboxConnectionError(f"mailbox {name!r} can't be reached ({why}): try again later")


_VERBS = frozenset(
    {
        *("send", "send_many", "receive", "purge", "approximate_count", "stats"),
        *("acknowledge_many", "nack_many", "extend_visibility_many", "release_many"),
        *("peek", "delete", "redrive"),
        *("_acknowledge", "_run"),  # called by messages
    }
)
