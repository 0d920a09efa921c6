"""Mailboxes behind a broker, for threads: a lean client over connections that are kept."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.queue import Redelivery
from pillarbox.mailbox.answers import answer, dropped, is_reply_queue
from pillarbox.mailbox.broker.address import PATIENCE_SECONDS, address_of
from pillarbox.mailbox.broker.channel import Channels, channels_to
from pillarbox.mailbox.broker.desk import ThreadDesk
from pillarbox.mailbox.broker.errors import QueueNotFoundError
from pillarbox.mailbox.broker.wire import (
    Declare,
    Delete,
    Drop,
    Moved,
    Peek,
    Policy,
    Redrive,
    Send,
)
from pillarbox.mailbox.local import LocalMailbox, check_options
from pillarbox.mailbox.message import Message, Undecodable
from pillarbox.mailbox.protocol import DeadLetterPolicy, SpecialForm

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:9324"
PART = 10_000  # messages that are moved or deleted in one request
_PAGE = 1_000  # messages that are looked at in one step
_REPLIES_MAX = 100
_PATIENCE_SECONDS_MAX = 3_600


class BrokerOptions(TypedDict, total=False):
    """How a mailbox behind a broker may be opened. A queue that exists keeps its settings.

    Without `dead_letters` a new queue has the broker's own policy; with None it has none.
    `create=False` opens a queue that exists and changes nothing; it raises if there is none.
    """

    url: str
    dead_letters: DeadLetterPolicy | None
    redelivery: Redelivery
    capacity: int | None
    create: bool
    patience_seconds: float
    tls: ssl.SSLContext | None


_OPTIONS = tuple(BrokerOptions.__annotations__)


class BrokerMailbox(LocalMailbox[T], Generic[T]):
    """A mailbox in the broker at `url`.

    It is safe from any thread; threads share a few connections. A broken connection is made
    again, and what was asked is asked again, once only: `UnknownOutcomeError` if neither side
    can know whether it was done. `patience_seconds` says how long to try.
    """

    _desk: Any
    _store: Any

    @overload
    def __init__(
        self: BrokerMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[BrokerOptions],
    ) -> None: ...
    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[BrokerOptions]) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[BrokerOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[BrokerOptions]) -> None:
        declaration = declaration_of(name, options)
        self._attach(ThreadDesk, channels_to(broker_of(options)), name, body_type)
        self._desk.declare(declaration)
        self._counts = True
        self._desk.channels.enter()

    def _attach(
        self, kind: type[ThreadDesk], channels: Channels, name: str, body_type: Any
    ) -> None:
        """Take a place at the desk of a queue; mailboxes of one queue share it."""
        desk: Any = channels.desks.get((kind, name))
        if desk is None:
            desk = channels.desks[kind, name] = kind(name, channels)
        self._counts = False  # among those that keep connections open
        self._replies: dict[str, BrokerMailbox[Any]] = {}
        super().__init__(desk, body_type, open_reply=self._open_by_name)

    @property
    def dead_letters(self) -> BrokerMailbox[T] | None:
        """The mailbox of this one's dead letters, if it has a policy."""
        if self._desk.dead is None:
            return None
        other = self._sibling(self._desk.dead, Any)
        other._use(self._codec)
        return other

    def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""
        self._refuse_if_closed()
        return sum(self._desk.outcome(part) for part in deletes(list(self._keys(ids))))

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""
        chosen = self._to_redrive(ids, to)
        if where is not None:
            pages = Pages()
            matching = []
            while page := self._desk.outcome(pages.look):
                for each in pages.fresh(page):
                    message = self._seen(each, each.number, Message, self)
                    if (chosen is None or message.id in chosen) and where(message):
                        matching.append(message.id)
            chosen = matching
        moves = redrives(chosen, to)
        try:
            part = next(moves)
            while True:
                part = moves.send(self._desk.outcome(part))
        except StopIteration as done:
            return int(done.value)

    def _to_redrive(self, ids: Iterable[str] | None, to: str | None) -> list[str] | None:
        self._refuse_if_closed()
        if to is not None and limits.queue_name(to, "to") == self.name:
            raise InvalidParameterError("to", to, "the name of another mailbox")
        return None if ids is None else list(self._keys(ids))  # type: ignore[arg-type]

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        super().close()
        if self._counts:
            self._counts = False
            self._desk.channels.leave()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._desk.channels.address.origin})"

    # What messages ask of the mailbox that delivered them.

    def _message_id(self, delivery: Any) -> str:
        message_id: str = delivery.record.id
        return message_id

    def _receipt_handle(self, delivery: Any) -> str:
        handle: str = delivery.record.handle
        return handle

    def _open_by_name(self, name: str) -> BrokerMailbox[Any]:
        """Where a reply goes: a queue of the same broker."""
        answers = self._replies.get(name)
        if answers is None:
            answers = self._sibling(reply_queue(name, self._desk), Any)
            if not is_reply_queue(answers.name):  # a client makes its own
                answers._desk.declare(Declare())
            remember(self._replies, name, answers)
        return answers

    def _answer(self, in_reply_to: str, body: Any) -> str:
        command = answer_to(in_reply_to, body)
        try:
            ids: list[str] = self._desk.outcome(command, again=not is_reply_queue(self.name))
        except QueueNotFoundError:
            if not is_reply_queue(self.name):
                raise
            return dropped(self.name, in_reply_to)
        return ids[0]

    def _keep_for_answers(self) -> None:
        self._desk.declare(self._desk.declaration)

    def _end_with_client(self) -> None:
        self._desk.outcome(Drop(), again=False)

    def _sibling(self, name: str, body_type: Any) -> BrokerMailbox[Any]:
        other: BrokerMailbox[Any] = BrokerMailbox.__new__(BrokerMailbox)
        other._attach(ThreadDesk, self._desk.channels, name, body_type)
        return other


class Pages:
    """A way through all that is ready, a page at a time."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._skip = 0

    @property
    def look(self) -> Peek:
        """What to ask for next."""
        return Peek("ready", _PAGE, self._skip)

    def fresh(self, page: list[Any]) -> list[Any]:
        """This page, without what has moved here from an earlier one."""
        self._skip += len(page)
        fresh = [each for each in page if each.id not in self._known]
        self._known.update(each.id for each in page)
        return fresh


def declaration_of(name: str, options: BrokerOptions) -> Declare:
    """The queue as these options want it; raises if one of them is wrong."""
    limits.queue_name(name)
    check_options(options, _OPTIONS)
    policy = options.get("dead_letters")
    buried = None
    if policy is not None:
        dead = limits.queue_name(policy.name or f"{name}_dlq")
        buried = Policy(policy.max_deliveries, dead)
    return Declare(
        redelivery=options.get("redelivery", "tail"),
        capacity=options.get("capacity"),
        policy=buried,
        immortal="dead_letters" in options and policy is None,
        create=options.get("create", True),
    )


def broker_of(options: BrokerOptions) -> Any:
    """The address that these options name."""
    patience = options.get("patience_seconds", PATIENCE_SECONDS)
    limits.seconds("patience_seconds", patience, _PATIENCE_SECONDS_MAX)
    url = options.get("url", DEFAULT_URL)
    address, _ = address_of(url.rstrip("/") + "/", options.get("tls"), patience)
    return address


def redrives(chosen: Sequence[str] | None, to: str | None) -> Generator[Redrive, Any, int]:
    """Move these in parts, each of which the broker answers in time; how many were moved.

    All of them are those that are ready when it begins. What comes later, or comes back, stays.
    """
    total = skip = 0
    if chosen is not None:
        for some in batched(chosen):
            total += yield Redrive(some, to)
        return total
    left: int | None = None
    while left is None or left > 0:
        part: Moved = yield Redrive(None, to, PART if left is None else min(PART, left), skip)
        looked = part.moved + part.stay
        left = part.left if left is None else left - looked
        total += part.moved
        skip += part.stay
        if not looked:  # others took the rest
            break
    return total


def deletes(ids: Sequence[Any]) -> list[Delete]:
    """The commands that delete these messages."""
    return [Delete(some) for some in batched(ids)]


def batched(ids: Sequence[str]) -> Iterator[list[str]]:
    """These ids, as many as the broker works off in time in each part."""
    for first in range(0, len(ids), PART):
        yield list(ids[first : first + PART])


def reply_queue(reply_to: str, desk: ThreadDesk) -> str:
    """The queue that an answer goes to: users of SQS's face may name it by its URL as well."""
    if "://" in reply_to:
        address, name = address_of(reply_to.removeprefix("sqs+"))
        if address.authority == desk.channels.address.authority:
            reply_to = name
    return limits.queue_name(reply_to, "reply_to")


def remember(replies: dict[str, Any], name: str, answers: Any) -> None:
    """Keep a mailbox for replies at hand, in the place of the oldest if there are many."""
    replies[name] = answers
    if len(replies) > _REPLIES_MAX:
        del replies[next(iter(replies))]


def answer_to(in_reply_to: str, body: Any) -> Send:
    """The command that sends an answer."""
    data, noted = answer(in_reply_to, body)
    limits.body_bytes(data, limits.BODY_BYTES_MAX)
    return Send([data], attributes=noted)
