"""`RedisMailbox`: a mailbox on Redis, for threads. One server, a cluster or sentinels alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, Unpack, overload

from pillarbox.closing import Closing
from pillarbox.core import limits
from pillarbox.mailbox.message import Message, Undecodable
from pillarbox.mailbox.protocol import SpecialForm, State, Stats
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.face import Face
from pillarbox.mailbox.redis.link import Link
from pillarbox.mailbox.redis.opening import Opening, RedisOptions
from pillarbox.mailbox.redis.queues import delete
from pillarbox.mutex import now_or_soon

T = TypeVar("T")


class RedisMailbox(Face[T, Link], Closing, Generic[T]):
    """A mailbox on Redis, safe from any thread.

        orders = RedisMailbox("orders", Order, url="redis://localhost")

    Whoever opens the same name at the same place has the same queue. Options: `RedisOptions`.
    """

    @overload
    def __init__(
        self: RedisMailbox[Any], name: str, body_type: SpecialForm, **options: Unpack[RedisOptions]
    ) -> None: ...
    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[RedisOptions]) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[RedisOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[RedisOptions]) -> None:
        opening = Opening(options, asynchronous=False)
        self._set_up(name, body_type, opening, Link(opening.site, opening.retry_seconds))
        self._link.run(self._verbs.open(**opening.settings))

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
        verbs = self._verbs
        verbs.refuse_if_closed()
        data = verbs.packed([body])
        noted = verbs.attributes(attributes, reply_to, len(data[0]))
        plan = verbs.send(data, delay_seconds, priority, noted, group, deduplication_id)
        return self._link.run(plan)[0]

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
        verbs = self._verbs
        verbs.refuse_if_closed()
        data = verbs.packed(list(bodies))
        noted = verbs.attributes(attributes, reply_to, max(map(len, data), default=0))
        return self._link.run(verbs.send(data, delay_seconds, priority, noted, group))

    def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[Message[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""
        verbs = self._verbs
        verbs.refuse_if_closed()
        options = max_messages, visibility_timeout, wait_time_seconds
        return self._link.run(verbs.receive(*options, Message, self))

    def acknowledge_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Delete these in one step; False for each whose delivery is over."""
        return self._settle("acknowledge", None, self._verbs.deliveries(messages))

    def nack_many(
        self, messages: Iterable[Message[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later, in one step."""
        delay = self._verbs.microseconds(visibility_timeout)
        return self._settle("nack", delay, self._verbs.deliveries(messages))

    def extend_visibility_many(self, messages: Iterable[Message[T]], timeout: float) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        microseconds = self._verbs.microseconds(timeout, "timeout")
        return self._settle("extend", microseconds, self._verbs.deliveries(messages))

    def release_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Give these back with no delivery counted."""
        return self._settle("release", "0", self._verbs.deliveries(messages))

    def purge(self) -> int:
        """Delete everything (ready, scheduled, in flight); how many there were."""
        self._verbs.refuse_if_closed()
        return self._link.run(self._verbs.purge())

    def approximate_count(self) -> int:
        """Ready + scheduled + in flight; exact."""
        return self.stats().total

    def stats(self) -> Stats:
        """The count by state, with the age of the oldest."""
        return self._link.run(self._verbs.stats())

    def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[Message[T | Undecodable]]:
        """Look at messages without receiving them: nothing is leased, nothing counted."""
        return self._link.run(self._verbs.peek(max_messages, state, Message, self))

    def delete(self, ids: Iterable[str]) -> int:
        """Delete messages by id, whatever their state; how many there were."""
        self._verbs.refuse_if_closed()
        return self._link.run(self._verbs.delete(ids))

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another mailbox."""
        self._verbs.refuse_if_closed()
        return self._link.run(self._verbs.redrive(ids, where, to, Message, self))

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        self._verbs.closed = True
        now_or_soon(self._let_go)

    def _let_go(self) -> None:
        self._link.unblock(self.name)
        if self._owns_link:
            self._link.close()

    def _settle(self, script: str, argument: Any, deliveries: list[wire.Delivery]) -> list[bool]:
        return self._link.run(self._verbs.settle(script, argument, deliveries))

    # What messages ask of the mailbox that delivered them.

    def _acknowledge(self, delivery: wire.Delivery) -> bool:
        return self._settle("acknowledge", None, [delivery])[0]

    def _nack(self, delivery: wire.Delivery, visibility_timeout: float) -> bool:
        return self._settle("nack", self._verbs.microseconds(visibility_timeout), [delivery])[0]

    def _extend(self, delivery: wire.Delivery, timeout: float) -> bool:
        return self._settle("extend", self._verbs.microseconds(timeout, "timeout"), [delivery])[0]

    def _release(self, delivery: wire.Delivery) -> bool:
        return self._settle("release", "0", [delivery])[0]

    def _reject(self, delivery: wire.Delivery, reason: str) -> bool:
        return self._settle("reject", limits.text("reason", reason), [delivery])[0]

    # What a client asks of the mailbox that it has for its answers.

    def _keep_for_answers(self) -> None:
        """A client lives, and waits for answers here."""
        self._link.run(self._verbs.keep_for_answers())

    def _end_with_client(self) -> None:
        """Delete the queue."""
        self._link.run(delete(self._verbs.queue, all_keys=False))

    def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        return self._link.run(self._answers(to).answer(in_reply_to, body))
