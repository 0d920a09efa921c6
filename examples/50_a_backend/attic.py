"""A skeleton of a backend: mailboxes behind a server called the attic.

Copy it, and replace `Attic` and `AtticConnection` with your server and a connection to it. The
attic here is a store in this process, so that the example runs without a server. A backend needs:

- the verbs (`AtticVerbs`), once, as generators that yield the requests they need;
- a connection that makes one request, for threads (`AtticConnection`); one for asyncio is alike;
- a mailbox class that joins the two, and `open_url` for the entry point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from pillarbox import InMemoryMailbox, InvalidParameterError, MailboxClosedError, Message, Stats
from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.mailbox.abstract import AbstractMailbox
from pillarbox.mailbox.answers import (
    IN_REPLY_TO,
    REPLY_TO,
    answer,
    dropped,
    is_reply_queue,
    quoted,
)
from pillarbox.mailbox.message import Details
from pillarbox.mailbox.protocol import State
from pillarbox.mailbox.runner import Connection, Verb
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.verbs import Outgoing, Verbs, Where, no_target, user_attributes

T = TypeVar("T")

Kept = Message[bytes]  # what the attic knows of a delivery
_SECOND_NS = 1_000_000_000


class Request(msgspec.Struct):
    """What a verb asks of the attic."""

    queue: str
    verb: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    given_up: Callable[[], bool] = bool  # whether nobody waits for it any more


class Letter(msgspec.Struct, array_like=True):
    """A message as it lies in the attic."""

    body: bytes
    attributes: dict[str, str] | None = None


_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(Letter).decode


class AtticVerbs(Verbs[T, Kept], Generic[T]):
    """The verbs of one mailbox object. What callers pass in was checked by `Verbs`."""

    dead: str | None = None
    wanted: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def open(self) -> Verb[None]:
        self.dead = yield Request(self.name, "open", options=self.wanted)

    def dead_letters(self) -> AtticVerbs[T] | None:
        return None if self.dead is None else self._beside(self.dead)

    def _beside(self, name: str) -> AtticVerbs[T]:
        return AtticVerbs(name, self.codec, self.max_body_bytes)

    def _ask(self, verb: str, *arguments: Any, **options: Any) -> Verb[Any]:
        return (yield Request(self.name, verb, arguments, options))

    def _send(self, sent: Outgoing) -> Verb[list[str]]:
        letters = [_pack(Letter(body, sent.attributes)) for body in sent.bodies]
        options = {
            "delay_seconds": sent.delay / _SECOND_NS,
            "priority": sent.priority,
            "group": sent.group,
        }
        if sent.deduplication_id is None:
            return (yield from self._ask("send_many", letters, **options))  # type: ignore[no-any-return]
        options["deduplication_id"] = sent.deduplication_id
        return [(yield from self._ask("send", letters[0], **options))]

    def _receive(self, mailbox: Any, count: int, timeout: int, wait: int) -> Verb[list[Any]]:
        while True:
            options = {
                "max_messages": count,
                "visibility_timeout": timeout / _SECOND_NS,
                "wait_time_seconds": wait / _SECOND_NS,
            }
            found = yield Request(self.name, "receive", (), options, lambda: self.closed)
            numbers = [kept.delivery_count for kept in found]
            bodies = list(map(self._body, found))
            messages = yield from self.received(mailbox, found, numbers, bodies)
            if messages or not found:
                return messages

    def has_dead_letters(self) -> Verb[bool]:
        yield from self.open()
        return self.dead is not None

    def _body(self, kept: Kept) -> bytes:
        letter = _unpack(kept.body)
        return quoted(letter.body, letter.attributes) if self.reads_json else letter.body

    def acknowledge(self, deliveries: Sequence[Kept]) -> Verb[list[bool]]:
        return self._ask("acknowledge_many", deliveries)

    def _nack(self, deliveries: Sequence[Kept], delay: int) -> Verb[list[bool]]:
        return self._ask("nack_many", deliveries, visibility_timeout=delay / _SECOND_NS)

    def _extend(self, deliveries: Sequence[Kept], timeout: int) -> Verb[list[bool]]:
        return self._ask("extend_visibility_many", deliveries, timeout / _SECOND_NS)

    def release(self, deliveries: Sequence[Kept]) -> Verb[list[bool]]:
        return self._ask("release_many", deliveries)

    def _reject(self, deliveries: Sequence[Kept], reason: str) -> Verb[list[bool]]:
        return self._ask("reject_many", deliveries, reason)

    def _purge(self) -> Verb[int]:
        return self._ask("purge")

    def stats(self) -> Verb[Stats]:
        return self._ask("stats")

    def _peek(self, mailbox: Any, count: int, state: State) -> Verb[list[Any]]:
        found = yield from self._ask("peek", count, state=state)
        return [self._seen(kept, mailbox) for kept in found]

    def _seen(self, kept: Kept, mailbox: Any) -> Any:
        return self.peeked(mailbox, kept, kept.delivery_count, self._body(kept))

    def _delete(self, ids: list[str]) -> Verb[int]:
        return self._ask("delete", ids)

    def _redrive(
        self, mailbox: Any, ids: list[str] | None, where: Where | None, to: str | None
    ) -> Verb[int]:
        if to is not None and not (yield Request(to, "exists")):
            raise no_target(to)
        chosen = None if where is None else lambda kept: where(self._seen(kept, mailbox))
        return (yield from self._ask("redrive", ids, where=chosen, to=to))  # type: ignore[no-any-return]

    def _reply(self, to: str, in_reply_to: str, body: Any) -> Verb[str]:
        name = limits.queue_name(to, "reply_to")
        data, noted = answer(in_reply_to, body)
        limits.body_bytes(data, self.max_body_bytes)
        if is_reply_queue(name) and not (yield Request(name, "exists")):
            return dropped(name, in_reply_to)  # its client has closed
        return (yield Request(name, "send", (_pack(Letter(data, noted)),)))  # type: ignore[no-any-return]

    def keep_for_answers(self) -> Verb[None]:
        return self.open()

    def delete_queue(self) -> Verb[None]:
        return self._ask("drop")

    def message_id(self, delivery: Kept) -> str:
        return delivery.id

    def receipt_handle(self, delivery: Kept) -> str:
        return delivery.receipt_handle

    def details(self, delivery: Kept) -> Details:
        noted = _unpack(delivery.body).attributes or {}
        return Details(
            enqueued_at=delivery.enqueued_at,
            attributes=user_attributes(noted),
            priority=delivery.priority,
            group=delivery.group,
            reply_to=noted.get(REPLY_TO),
            in_reply_to=noted.get(IN_REPLY_TO),
            dead_letter=delivery.dead_letter,
        )


class AtticConnection(Connection):
    """The way to the attic, for threads."""

    def __init__(self, attic: Store) -> None:
        self._attic = attic
        self._boxes: dict[str, InMemoryMailbox[bytes]] = {}

    def do(self, request: Request) -> Any:
        if request.verb == "exists":
            return request.queue in self._attic.sessions
        box = self._box(request.queue, **(request.options if request.verb == "open" else {}))
        match request.verb:
            case "open":
                return None if box.dead_letters is None else box.dead_letters.name
            case "drop":
                return box._run(box._verbs.delete_queue())
            case "reject_many":
                deliveries, reason = request.arguments
                return [kept.reject(reason) for kept in deliveries]
            case _ if request.given_up():  # after `wake`, which could not find this box
                return []
        try:
            return getattr(box, request.verb)(*request.arguments, **request.options)
        except MailboxClosedError:  # while it waited
            return []

    def _box(self, name: str, **options: Any) -> InMemoryMailbox[bytes]:
        box = self._boxes.get(name)
        if box is None or box.closed or options:
            size = limits.BODY_BYTES_CEILING  # `Verbs` checks what a caller may send
            box = InMemoryMailbox(name, bytes, store=self._attic, max_body_bytes=size, **options)
            self._boxes[name] = box
        return box

    def wake(self, verbs: Any) -> None:
        box = self._boxes.get(verbs.name)
        if box is not None:
            box.close()

    def close(self) -> None:
        for box in list(self._boxes.values()):
            box.close()


class AtticMailbox(AbstractMailbox[T], Generic[T]):
    """A mailbox in the attic, safe from any thread."""

    def __init__(self, name: str, body_type: Any = Any, *, attic: Store, **options: Any) -> None:
        size = options.pop("max_body_bytes", limits.BODY_BYTES_MAX)
        verbs: AtticVerbs[T] = AtticVerbs(limits.queue_name(name), codec_for(body_type), size)
        verbs.wanted = options
        self._start(verbs, AtticConnection(attic))


_attic = Store()  # of this process


def open_url(url: str, body_type: Any = Any, **options: Any) -> AtticMailbox[Any]:
    """What `open_mailbox("attic:orders")` calls, once the entry point is registered."""
    return AtticMailbox(url.partition(":")[2], body_type, attic=_attic, **options)


def open_async_url(url: str, body_type: Any = Any, **options: Any) -> Any:
    """For asyncio a backend has a second connection, and a class like `AbstractAsyncMailbox`."""
    raise InvalidParameterError("url", url, "opened by open_mailbox: there is no asyncio here")
