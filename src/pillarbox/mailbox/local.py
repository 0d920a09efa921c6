"""Typed mailboxes on a store of this process: the same face for memory and for disk.

A body is encoded before the store's lock is taken; `reading` is how it comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NoReturn, TypeVar, get_args

from pillarbox import notebook
from pillarbox.closing import Closing
from pillarbox.codec import QUICK_ERRORS, Codec, codec_for
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError
from pillarbox.core.queue import Lease, Record
from pillarbox.mailbox.answers import answer, dropped, reads_json
from pillarbox.mailbox.iteration import Iteration
from pillarbox.mailbox.local_options import checked_attributes, new_extra
from pillarbox.mailbox.message import Delivered, Message, Undecodable
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.queue_steps import SLICE
from pillarbox.mailbox.reading import Reader
from pillarbox.mailbox.verbs import no_target
from pillarbox.mutex import now_or_soon

T = TypeVar("T")

_STATES = ("ready", "scheduled", "in_flight")


class LocalMailbox(Reader[T], Iteration[T], Closing, Generic[T]):
    """A mailbox whose queue lives in this process."""

    def __init__(
        self,
        desk: QueueSession,
        body_type: Any = Any,
        *,
        open_reply: Callable[[str], Any],
        max_body_bytes: int = limits.BODY_BYTES_MAX,
    ) -> None:
        self._desk = desk
        self._store = desk.store
        self._open_reply = open_reply
        self._max_body_bytes = max_body_bytes
        self._closed = False
        self._face: Any = self  # what those messages ask things of
        self._use(codec_for(body_type))

    def _use(self, codec: Codec[T]) -> None:
        self._codec = codec
        self._reads_json = reads_json(codec)
        self._encode = codec.encode
        self._decode = codec.decode
        self._pack = codec.quick_encode
        self._unpack = codec.quick_decode

    def __set_type__(self, alias: Any) -> None:
        """`InMemoryMailbox[Order]("orders")`: the type in brackets is the body's type."""
        (body_type,) = get_args(alias)
        if not isinstance(body_type, TypeVar):
            self._use(codec_for(body_type))

    # `typing` notes the alias on each object made through it, as this attribute.
    __orig_class__ = property(fset=__set_type__)

    @property
    def name(self) -> str:
        """The queue\'s name."""
        return self._desk.queue.name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def dead_letters(self) -> LocalMailbox[T] | None:
        """The mailbox of this one's dead letters, if it has a policy."""
        return None if self._desk.dead is None else self._beside(self._desk.dead)

    def send(
        self,
        body: T,
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        """Put a message in; its unique id. It can't be received before its delay is over."""
        if self._closed:
            self._refuse()
        data = self._encode(body)
        if len(data) > self._max_body_bytes:
            limits.body_bytes(data, self._max_body_bytes)
        noted = None
        if attributes is not None or reply_to is not None:
            noted = checked_attributes(attributes, reply_to, len(data), self._max_body_bytes)
        extra = None
        if group is not None or deduplication_id is not None:
            extra = new_extra(group, deduplication_id)
        delay = limits.seconds("delay_seconds", delay_seconds, limits.DELAY_SECONDS_MAX)
        (key,) = self._desk.send((data,), limits.priority(priority), delay, noted, extra)
        return self._store.message_id(key)

    def send_many(
        self,
        bodies: Iterable[T],
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
    ) -> list[str]:
        """Put all of them in, or none: one step, not a loop. Their ids, in order."""
        self._refuse_if_closed()
        data = self._packed(list(bodies))
        noted = None
        if attributes is not None or reply_to is not None:
            noted = checked_attributes(
                attributes, reply_to, max(map(len, data), default=0), self._max_body_bytes
            )
        delay = limits.seconds("delay_seconds", delay_seconds, limits.DELAY_SECONDS_MAX)
        extra = None if group is None else new_extra(group, None)
        keys = self._desk.send(data, limits.priority(priority), delay, noted, extra)
        return self._store.message_ids(keys)

    def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[Message[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""
        return self._receive(
            *self._receive_options(max_messages, visibility_timeout, wait_time_seconds)
        )

    def _receive(self, count: int, timeout: int, wait: int) -> Sequence[Message[T]]:
        until = self._store.clock.now() + wait if wait else 0
        while True:
            leases = self._desk.receive(self, count, timeout, wait)
            messages = self._open(leases, self._kind, self._face)
            if messages or not leases:
                return messages
            wait = max(0, until - self._store.clock.now()) if wait else 0

    def acknowledge_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""
        return self._desk.acknowledge(self._leases(messages))

    def nack_many(
        self, messages: Iterable[Message[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""
        return self._desk.nack(self._leases(messages), self._timeout(visibility_timeout))

    def extend_visibility_many(self, messages: Iterable[Message[T]], timeout: float) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        return self._desk.extend(self._leases(messages), self._timeout(timeout, "timeout"))

    def release_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Give these back with no delivery counted."""
        return self._desk.release(self._leases(messages))

    def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""
        self._refuse_if_closed()
        return self._desk.purge()

    def approximate_count(self) -> int:
        """Ready + scheduled + in flight; exact."""
        return self.stats().total

    def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""
        ready, scheduled, in_flight, dead, age = self._desk.counts()
        seconds = None if age is None else age / limits.SECOND_NS
        return Stats(ready, scheduled, in_flight, dead, seconds)

    def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[Message[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""
        count = limits.whole("max_messages", max_messages, 1, limits.MESSAGES_MAX)
        limits.one_of("state", state, _STATES)
        return [self._seen(*found, Message, self) for found in self._desk.look(state, count)]

    def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""
        return self._store.confirmed_once(lambda: sum(self.delete_steps(ids)))

    def delete_steps(self, ids: Iterable[str]) -> Iterator[int]:
        """`delete`, a few messages at a time: how many each step deleted."""
        self._refuse_if_closed()
        keys = iter(self._keys(ids))
        while some := list(islice(keys, SLICE)):
            yield self._desk.remove(some)

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""
        steps = self.redrive_steps(ids, where=where, to=to)
        return self._store.confirmed_once(lambda: sum(moved for _, moved in steps))

    def redrive_steps(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
        allow: Callable[[Iterable[str]], None] | None = None,
        limit: int | None = None,
        skip: int = 0,
    ) -> Iterator[tuple[int, int]]:
        """`redrive`, a few messages at a time: how many each step looked at, and how many it moved.

        Without `ids`: those that are ready when it begins, not what comes later; with a `limit`
        no more than so many of them, after the first `skip`. `allow` raises if messages may not
        go to one of these queues; then nothing of its step has moved.
        """
        self._refuse_if_closed()
        if to is not None and limits.queue_name(to, "to") == self.name:
            raise InvalidParameterError("to", to, "the name of another mailbox")
        if to is not None and to not in self._store.desks:
            raise no_target(to)
        keys = None if ids is None else iter(self._keys(ids))
        left = self._desk.counts()[0] - skip if keys is None else 0
        left = left if limit is None else min(left, limit)
        while True:
            if keys is not None:
                seen = self._desk.pick(list(islice(keys, SLICE)))
            else:
                seen = self._desk.look("ready", min(SLICE, left), skip) if left > 0 else []
            if not seen:
                return
            moved = self._redrive(seen, where, to, allow)
            left -= len(seen)
            skip += len(seen) - moved
            yield len(seen), moved

    def _redrive(
        self,
        seen: Iterable[tuple[Record, int]],
        where: Callable[[Message[T | Undecodable]], bool] | None,
        to: str | None,
        allow: Callable[[Iterable[str]], None] | None,
    ) -> int:
        moves: dict[str, list[int]] = {}
        for record, deliveries in seen:
            if where is not None and not where(self._seen(record, deliveries, Message, self)):
                continue
            death = record.extra.death if record.extra is not None else None
            target = to if to is not None or death is None else death.source
            if target is not None and target in self._store.desks:  # else it stays where it is
                moves.setdefault(target, []).append(record.key)
        if allow is not None:
            allow(moves)
        return sum(
            self._desk.redrive(keys, self._store.desk(target)) for target, keys in moves.items()
        )

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        self._closed = True
        now_or_soon(self._desk.wake_all, self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.approximate_count():,} messages)"

    _repr_html_ = notebook.of_mailbox

    # What messages ask of the mailbox that delivered them.

    def _acknowledge(self, lease: Lease) -> bool:
        return self._desk.acknowledge((lease,))[0]

    def _nack(self, lease: Lease, visibility_timeout: float) -> bool:
        return self._desk.nack((lease,), self._timeout(visibility_timeout))[0]

    def _extend(self, lease: Lease, timeout: float) -> bool:
        return self._desk.extend((lease,), self._timeout(timeout, "timeout"))[0]

    def _release(self, lease: Lease) -> bool:
        return self._desk.release((lease,))[0]

    def _reject(self, lease: Lease, reason: str) -> bool:
        return self._desk.reject((lease,), limits.text("reason", reason))[0]

    def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        if to is None:
            raise InvalidParameterError(
                "reply_to", to, "named by the sender of the message that is replied to"
            )
        answers: LocalMailbox[Any] | None = self._open_reply(to)
        if answers is None:
            return dropped(to, in_reply_to)
        return answers._answer(in_reply_to, body)

    def _answer(self, in_reply_to: str, body: Any) -> str:
        """Send `body` as the answer to a message."""
        data, noted = answer(in_reply_to, body)
        limits.body_bytes(data, self._max_body_bytes)
        (key,) = self._desk.send((data,), attributes=noted)
        return self._store.message_id(key)

    # What a client asks of the mailbox that it has for its answers.

    def _keep_for_answers(self) -> None:
        """A client lives, and waits for answers here."""
        self._store.keep_reply_queue(self.name)

    def _end_with_client(self) -> None:
        """Delete the queue."""
        self._store.drop_reply_queue(self.name)

    # The rest is how the verbs above check and convert.

    def _beside(self, desk: QueueSession) -> LocalMailbox[T]:
        """A mailbox of the same type on another queue of the store."""
        other: LocalMailbox[T] = LocalMailbox(
            desk, open_reply=self._open_reply, max_body_bytes=self._max_body_bytes
        )
        other._use(self._codec)
        return other

    def _receive_options(
        self,
        max_messages: int = 1,
        visibility_timeout: float = limits.VISIBILITY_SECONDS_DEFAULT,
        wait_time_seconds: float = 0,
    ) -> tuple[int, int, int]:
        if self._closed:
            self._refuse()
        seconds = limits.seconds
        return (
            limits.whole("max_messages", max_messages, 1, limits.MESSAGES_MAX),
            seconds("visibility_timeout", visibility_timeout, limits.VISIBILITY_SECONDS_MAX),
            seconds("wait_time_seconds", wait_time_seconds, limits.WAIT_SECONDS_MAX),
        )

    def _packed(self, bodies: list[T]) -> list[bytes]:
        try:
            data = list(map(self._pack, bodies))
        except QUICK_ERRORS:
            data = list(map(self._encode, bodies))
        limits.body_bytes(max(data, key=len, default=b""), self._max_body_bytes)
        return data

    def _leases(self, messages: Iterable[Any]) -> list[Lease]:
        chosen = list(messages)
        try:
            face = self._face
            leases = [message._delivery for message in chosen if message._mailbox is face]
            if len(leases) == len(chosen):
                return leases
        except AttributeError:  # something is no message: find out which
            pass
        leases = []
        for message in chosen:
            if not isinstance(message, Delivered) or message._mailbox._desk is not self._desk:
                raise InvalidParameterError(
                    "messages", message, f"messages received from mailbox {self.name!r}"
                )
            leases.append(message._delivery)
        return leases

    def _keys(self, ids: Iterable[str]) -> frozenset[int]:
        if isinstance(ids, str):
            raise InvalidParameterError("ids", ids, "several message ids, not one str")
        keys = (self._store.key_of(limits.text("ids", message_id, 0)) for message_id in ids)
        return frozenset(key for key in keys if key is not None)

    def _timeout(self, value: float, parameter: str = "visibility_timeout") -> int:
        return limits.seconds(parameter, value, limits.VISIBILITY_SECONDS_MAX)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            self._refuse()

    def _refuse(self, body: object = None) -> NoReturn:
        raise MailboxClosedError(
            f"mailbox {self.name!r} was closed: open it again to send or receive"
        )
