"""Mailboxes for tests: one that drops, one that remembers, one that fails on demand.

They are in-memory mailboxes with one thing changed, so what they do is what mailboxes do.
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
    """Takes every message and drops it; there is never one to receive.

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
    """One message that a `CollectingMailbox` was asked to send."""

    id: str
    body: T
    options: Mapping[str, Any]


class CollectingMailbox(InMemoryMailbox[T], Generic[T]):
    """Remembers what was sent, for a test to look at; it can be received as well.

    Examples:
        >>> box = CollectingMailbox("orders", str)
        >>> _ = box.send("tea", priority=9)
        >>> [(sent.body, sent.options) for sent in box.sent]
        [('tea', {'priority': 9})]
    """

    @property
    def sent(self) -> list[Sent[T]]:
        """What was sent, in order; clear it to begin anew."""
        sent: list[Sent[T]] = self.__dict__.setdefault("_sent", [])
        return sent

    @property
    def bodies(self) -> list[T]:
        """The bodies of what was sent, in order."""
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
    """Fails when a test says so: leases that run out, a broken connection, strange bodies.

    Examples:
        >>> box = FakeMailbox("orders", str)
        >>> _ = box.send("tea")
        >>> (message,) = box.receive()
        >>> box.expire(message)
        >>> message.acknowledge()
        False
    """

    _broken: str | None = None
    _kind: Any = Message  # each of its verbs asks the mailbox, which may be broken

    def expire(self, message: Message[T]) -> None:
        """The lease of this message has run out: its handle is stale, and it is ready again."""
        self._session.extend(self._deliveries([message]), 0)

    def break_connection(self, why: str = "connection refused") -> None:
        """From now on every verb raises `MailboxConnectionError`."""
        self._broken = why

    def restore_connection(self) -> None:
        """Everything works again; nothing was lost meanwhile."""
        self._broken = None

    def inject(self, data: bytes, *, delay_seconds: float = 0, priority: int = 0) -> str:
        """Put in a message with these very bytes as its body, decodable or not."""
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
        *("_acknowledge", "_run"),  # what its messages call
    }
)
