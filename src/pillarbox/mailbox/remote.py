"""`RemoteMailbox`: a mailbox behind a server, for threads, whatever the server is.

A backend is its verbs (`verbs.Verbs`), a connection (`runner.Connection`) and a class derived from
this one that makes both from its options. `async_remote` is the twin for asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, get_args

from pillarbox import notebook
from pillarbox.closing import Closing
from pillarbox.codec import Codec, codec_for
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.iteration import Iteration
from pillarbox.mailbox.message import Details, Message, Undecodable
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.runner import Connection, Runnable, run_sync
from pillarbox.mailbox.verbs import Verbs
from pillarbox.mutex import now_or_soon

T = TypeVar("T")
R = TypeVar("R")


class RemoteParts(Generic[T]):
    """What the two kinds of remote mailbox share: all that needs no server."""

    _kind: Any  # the class of its messages
    _verbs: Verbs[T, Any]
    _connection: Any
    _owns_connection = True

    def __set_type__(self, alias: Any) -> None:
        """`RedisMailbox[Order]("orders")`: the type in brackets is the body's type."""
        (body_type,) = get_args(alias)
        if not isinstance(body_type, TypeVar):
            self._use(codec_for(body_type))

    def _use(self, codec: Codec[T]) -> None:
        self._verbs.use(codec)

    # `typing` notes the alias on each object made through it, as this attribute.
    __orig_class__ = property(fset=__set_type__)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._verbs.name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._verbs.closed

    @property
    def dead_letters(self) -> Self | None:
        """The mailbox of this one's dead letters, if it has a policy; known once it is open."""
        verbs = self._verbs.dead_letters()
        if verbs is None:
            return None
        other = object.__new__(type(self))
        other._share(verbs, self._connection)
        return other

    def _share(self, verbs: Verbs[T, Any], connection: Any) -> None:
        """Be a mailbox of another queue over the connection of another mailbox."""
        self._verbs = verbs
        self._connection = connection
        self._owns_connection = False

    def __repr__(self) -> str:
        where = f", {self._verbs.where}" if self._verbs.where else ""
        return f"{type(self).__name__}({self.name!r}{where})"

    def _deliveries(self, messages: Iterable[Any]) -> list[Any]:
        """What was delivered as these messages; raises if one is not of this queue."""
        chosen = list(messages)
        try:
            deliveries = [message._delivery for message in chosen if message._mailbox is self]
            if len(deliveries) == len(chosen):
                return deliveries
        except AttributeError:  # something is no message: find out which
            pass
        for message in chosen:
            verbs = getattr(getattr(message, "_mailbox", None), "_verbs", None)
            if verbs is None or verbs.identity != self._verbs.identity:
                raise InvalidParameterError(
                    "messages", message, f"messages received from mailbox {self.name!r}"
                )
        return [message._delivery for message in chosen]

    # What messages ask of the mailbox that delivered them.

    def _message_id(self, delivery: Any) -> str:
        return self._verbs.message_id(delivery)

    def _receipt_handle(self, delivery: Any) -> str:
        return self._verbs.receipt_handle(delivery)

    def _details(self, delivery: Any) -> Details:
        return self._verbs.details(delivery)


class RemoteMailbox(RemoteParts[T], Iteration[T], Closing, Generic[T]):
    """A mailbox behind a server, safe from any thread."""

    _kind = Message
    _connection: Connection

    def _start(self, verbs: Verbs[T, Any], connection: Connection) -> None:
        """Open it."""
        self._verbs = verbs
        self._connection = connection
        try:
            self._run(verbs.open())
        except BaseException:
            connection.close()
            raise

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
        """Send a message and return its unique id. It can't be received before its delay ends."""
        options = delay_seconds, priority, attributes, reply_to, group, deduplication_id
        return self._run(self._verbs.send((body,), *options))[0]

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
        """Send all of them, or none, in one step (SQS: in batches); their ids, in order."""
        options = delay_seconds, priority, attributes, reply_to, group
        return self._run(self._verbs.send(list(bodies), *options))

    def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[Message[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""
        options = max_messages, visibility_timeout, wait_time_seconds
        return self._run(self._verbs.receive(self, *options))

    def acknowledge_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""
        return self._run(self._verbs.acknowledge(self._deliveries(messages)))

    def nack_many(
        self, messages: Iterable[Message[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""
        return self._run(self._verbs.nack(self._deliveries(messages), visibility_timeout))

    def extend_visibility_many(self, messages: Iterable[Message[T]], timeout: float) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        return self._run(self._verbs.extend(self._deliveries(messages), timeout))

    def release_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Give these back with no delivery counted (SQS counts it all the same)."""
        return self._run(self._verbs.release(self._deliveries(messages)))

    def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""
        return self._run(self._verbs.purge())

    def approximate_count(self) -> int:
        """Ready + scheduled + in flight; exact but on SQS."""
        return self.stats().total

    def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""
        return self._run(self._verbs.stats())

    def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[Message[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""
        return self._run(self._verbs.peek(self, max_messages, state))

    def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""
        return self._run(self._verbs.delete(ids))

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""
        return self._run(self._verbs.redrive(self, ids, where, to))

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        if not self._verbs.closed:
            self._verbs.closed = True
            now_or_soon(self._hang_up)

    def _hang_up(self) -> None:
        self._connection.wake(self._verbs)
        if self._owns_connection:
            self._connection.close()

    _repr_html_ = notebook.of_mailbox

    def _run(self, verb: Runnable[R]) -> R:
        return run_sync(verb, self._connection.do)

    # What messages ask of the mailbox that delivered them.

    def _acknowledge(self, delivery: Any) -> bool:
        return self._run(self._verbs.acknowledge((delivery,)))[0]

    def _nack(self, delivery: Any, visibility_timeout: float) -> bool:
        return self._run(self._verbs.nack((delivery,), visibility_timeout))[0]

    def _extend(self, delivery: Any, timeout: float) -> bool:
        return self._run(self._verbs.extend((delivery,), timeout))[0]

    def _release(self, delivery: Any) -> bool:
        return self._run(self._verbs.release((delivery,)))[0]

    def _reject(self, delivery: Any, reason: str) -> bool:
        return self._run(self._verbs.reject((delivery,), reason))[0]

    def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        return self._run(self._verbs.reply(to, in_reply_to, body))

    # What a `RequestClient` asks of the mailbox that it has for its answers.

    def _keep_for_answers(self) -> None:
        self._run(self._verbs.keep_for_answers())

    def _end_with_client(self) -> None:
        self._run(self._verbs.delete_queue())
