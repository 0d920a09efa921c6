"""The verbs of a mailbox whose queue is in this process, and the connections that run them.

A verb is a plain callable, because there is no server to call. On an event loop, waiting for a
message or for the disk does not block the loop. Bodies are encoded before the store's lock is taken
and decoded after it is released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import islice
from typing import Any, Self, TypeVar

from pillarbox.codec import Codec
from pillarbox.core import limits
from pillarbox.core.queue import Extra, Lease, Record
from pillarbox.mailbox.answers import answer, dropped, quoted
from pillarbox.mailbox.message import DeadLetter, Details
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.queue_steps import SLICE
from pillarbox.mailbox.runner import AsyncConnection, Connection, Step
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.verbs import Outgoing, Verbs, Where, details_of, no_target
from pillarbox.mailbox.waiters import TaskWaiter
from pillarbox.mutex import paced

T = TypeVar("T")
R = TypeVar("R")


class LocalVerbs(Verbs[T, Lease]):
    """The verbs of a queue in this process."""

    session: QueueSession
    store: Store

    def __init__(
        self,
        session: QueueSession,
        codec: Codec[T],
        max_body_bytes: int = limits.BODY_BYTES_MAX,
    ) -> None:
        super().__init__(session.queue.name, codec, max_body_bytes)
        self.use_session(session)

    def use_session(self, session: QueueSession) -> None:
        self.session = session
        self.store = session.store

    @property
    def where(self) -> str:  # type: ignore[override]
        """The number of messages, for `repr`: there is no server to name."""
        return f"{sum(self.session.counts()[:3]):,} messages"

    @property
    def identity(self) -> object:
        return self.session

    def open(self) -> Step[None]:
        return lambda: None

    def wake(self) -> None:
        """Wake every receive that waits on this mailbox."""
        self.session.wake_all(self)

    def dead_letters(self) -> Self | None:
        dead = self.session.dead
        if dead is None:
            return None
        other = copy(self)
        other.name, other.closed = dead.queue.name, False
        other.use_session(dead)
        return other

    def _send(self, sent: Outgoing) -> Step[list[str]]:
        extra: Callable[[], Extra] | None = None
        if sent.group is not None or sent.deduplication_id is not None:
            extra = partial(Extra, group=sent.group, deduplication=sent.deduplication_id)

        def send() -> list[str]:
            keys = self.session.send(sent.bodies, sent.priority, sent.delay, sent.attributes, extra)
            return self.store.ids.of_all(keys)

        return send

    def _receive(self, mailbox: Any, count: int, timeout: int, wait: int) -> Step[list[Any]]:
        return Receive(self, mailbox, count, timeout, wait)

    def acknowledge(self, deliveries: Sequence[Lease]) -> Step[list[bool]]:
        return lambda: self.session.acknowledge(deliveries)

    def _nack(self, deliveries: Sequence[Lease], delay: int) -> Step[list[bool]]:
        return lambda: self.session.nack(deliveries, delay)

    def _extend(self, deliveries: Sequence[Lease], timeout: int) -> Step[list[bool]]:
        return lambda: self.session.extend(deliveries, timeout)

    def release(self, deliveries: Sequence[Lease]) -> Step[list[bool]]:
        return lambda: self.session.release(deliveries)

    def _reject(self, deliveries: Sequence[Lease], reason: str) -> Step[list[bool]]:
        return lambda: self.session.reject(deliveries, reason)

    def _purge(self) -> Step[int]:
        return lambda: self.session.purge()  # noqa: PLW0108 - it may have to be opened first

    def stats(self) -> Step[Stats]:
        return self._stats

    def _stats(self) -> Stats:
        ready, scheduled, in_flight, dead, age = self.session.counts()
        seconds = None if age is None else age / limits.SECOND_NS
        return Stats(ready, scheduled, in_flight, dead, seconds)

    def _peek(self, mailbox: Any, count: int, state: State) -> Step[list[Any]]:
        return lambda: [self.seen(*found, mailbox) for found in self.session.look(state, count)]

    def _delete(self, ids: list[str]) -> Step[int]:
        return lambda: self.store.confirmed_once(lambda: sum(self._paced(self.delete_steps(ids))))

    def delete_steps(self, ids: Iterable[str]) -> Iterator[int]:
        """Delete a few messages at a time; yield how many each step deleted."""
        keys = self._keys(ids)
        while some := list(islice(keys, SLICE)):
            yield self.session.remove(some)

    def _redrive(
        self, mailbox: Any, ids: list[str] | None, where: Where | None, to: str | None
    ) -> Step[int]:
        def chosen(record: Record, deliveries: int) -> bool:
            return where is None or where(self.seen(record, deliveries, mailbox))

        def redrive() -> int:
            steps = self._paced(self.redrive_steps(ids, to, chosen=chosen))
            return sum(moved for _, moved in steps)

        return lambda: self.store.confirmed_once(redrive)  # the session may not be open yet

    def _paced(self, steps: Iterator[R]) -> Iterator[R]:
        """In a broker, pause between steps so that its event loop gets the interpreter."""
        return steps if self.store.settles_all else paced(steps, 1)

    def redrive_steps(
        self,
        ids: Iterable[str] | None,
        to: str | None,
        *,
        chosen: Callable[[Record, int], bool] = lambda record, deliveries: True,
        allow: Callable[[Iterable[str]], None] = lambda targets: None,
        limit: int | None = None,
        skip: int = 0,
    ) -> Iterator[tuple[int, int]]:
        """Redrive a few messages at a time; yield how many each step examined and moved.

        Without `ids`, move the messages that are ready at the start, at most `limit` of them, after
        the first `skip`. `allow` raises if messages may not go to one of these queues; then the
        step moves nothing.
        """
        if to is not None and to not in self.store.sessions:
            raise no_target(to)
        keys = None if ids is None else self._keys(ids)
        left = self.session.counts()[0] - skip if keys is None else 0
        left = left if limit is None else min(left, limit)
        while True:
            if keys is not None:
                wanted = list(islice(keys, SLICE))
                seen, at_end = self.session.pick(wanted), not wanted
            else:
                seen = self.session.look("ready", min(SLICE, left), skip) if left > 0 else []
                at_end = not seen
            if at_end:
                return
            moves = self._targets((record for record, n in seen if chosen(record, n)), to)
            allow(moves)
            moved = sum(
                self.session.redrive(some, self.store.session(target))
                for target, some in moves.items()
            )
            left -= len(seen)
            skip += len(seen) - moved
            yield len(seen), moved

    def _targets(self, records: Iterable[Record], to: str | None) -> dict[str, list[int]]:
        """Return the keys by target queue; a message without a target stays where it is."""
        moves: dict[str, list[int]] = {}
        for record in records:
            death = record.extra.death if record.extra is not None else None
            target = to if to is not None or death is None else death.source
            if target is not None and target in self.store.sessions:
                moves.setdefault(target, []).append(record.key)
        return moves

    def _reply(self, to: str, in_reply_to: str, body: Any) -> Step[str]:
        return partial(self._answer, to, in_reply_to, body)

    def _answer(self, to: str, in_reply_to: str, body: Any) -> str:
        session = self.session_for_answer(to)
        if session is None:
            return dropped(to, in_reply_to)
        data, attributes = answer(in_reply_to, body)
        limits.body_bytes(data, limits.BODY_BYTES_MAX)
        (key,) = session.send((data,), attributes=attributes)
        return session.store.message_id(key)

    def session_for_answer(self, name: str) -> QueueSession | None:
        """Return the session of a reply queue; None if its client has closed."""
        return self.store.session_for_answer(limits.queue_name(name, "reply_to"))

    def keep_for_answers(self) -> Step[None]:
        return lambda: self.store.keep_reply_queue(self.name)

    def delete_queue(self) -> Step[None]:
        return lambda: self.store.drop_reply_queue(self.name)

    # -- leases to messages --------------------------------------------------------------------

    def messages(self, leases: Sequence[Lease], mailbox: Any) -> list[Any]:
        """Decode the messages of these leases; log and dead-letter those that don't decode."""
        bodies = self.bodies([lease.record for lease in leases])
        numbers = [lease.number for lease in leases]
        messages, failed = self.decoded(mailbox, leases, numbers, bodies)
        for lease, error in failed:
            dead_lettered = self.session.dead is not None
            self.log_undecodable(self.message_id(lease), error, dead_lettered)
            if dead_lettered:
                self.session.reject((lease,), f"undecodable: {error}")
        return messages

    def bodies(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the bodies in the form that this mailbox decodes; None for a lost one."""
        bodies = self.session.bodies(records)
        if self.reads_json:
            for at, record in enumerate(records):
                body = bodies[at]
                if record.attributes and body is not None:
                    bodies[at] = quoted(body, record.attributes)
        return bodies

    def seen(self, record: Record, deliveries: int, mailbox: Any) -> Any:
        """Return a peeked message, with a lease that has already ended."""
        lease = Lease(record, deliveries, 0, 0, 0, record.extra)
        return self.peeked(mailbox, lease, deliveries, self.bodies([record])[0])

    def message_id(self, delivery: Lease) -> str:
        return self.store.message_id(delivery.record.key)

    def receipt_handle(self, delivery: Lease) -> str:
        return self.store.handle(self.session.queue, delivery) if delivery.leased_at else ""

    def details(self, delivery: Lease) -> Details:
        record, extra = delivery.record, delivery.extra
        epoch, letter = self.store.clock.epoch_ns, None
        if extra is not None and (death := extra.death) is not None:
            ended = ((epoch + a.leased_at, epoch + a.ended_at, a.outcome) for a in extra.attempts)
            letter = DeadLetter.of(death.source, death.reason, epoch + death.died_at, ended)
        group = extra.group if extra is not None else None
        sent_ns = epoch + (record.key << 1)
        return details_of(sent_ns, record.attributes, record.priority, group, letter)

    def _keys(self, ids: Iterable[str]) -> Iterator[int]:
        """Return the keys of these message ids; skip ids of other stores."""
        return (key for key in map(self.store.key_of, ids) if key is not None)


class Receive:
    """A receive that may wait for a message."""

    __slots__ = ("arguments",)

    def __init__(
        self, verbs: LocalVerbs[Any], mailbox: Any, count: int, timeout: int, wait: int
    ) -> None:
        self.arguments = verbs, mailbox, count, timeout, wait

    def __call__(self) -> list[Any]:
        verbs, mailbox, count, timeout, wait = self.arguments
        clock = verbs.store.clock
        until = clock.now() + wait if wait else 0
        while True:
            leases = verbs.session.receive(verbs, count, timeout, wait)
            messages = verbs.messages(leases, mailbox)
            if messages or not leases:
                return messages
            wait = max(0, until - clock.now()) if wait else 0

    async def in_task(self) -> list[Any]:
        """Receive without blocking the event loop."""
        verbs, mailbox, count, timeout, wait = self.arguments
        clock = verbs.store.clock
        until = clock.now() + wait
        while True:
            leases = verbs.session.receive(verbs, count, timeout, 0)
            if not leases and until > clock.now():
                leases = await _wait(verbs.session, TaskWaiter(verbs, count, timeout), until)
            messages = verbs.messages(leases, mailbox)
            if messages or not leases:
                return messages


async def _wait(session: QueueSession, waiter: TaskWaiter, until: int) -> list[Lease]:
    session.enter(waiter)
    loop = asyncio.get_running_loop()
    cancel_alarm = session.store.clock.call_at(until, waiter.finish, loop)
    try:
        await waiter.done
        return session.leave(waiter)
    except BaseException:  # cancelled: return the messages it was given
        session.give_up(waiter)
        raise
    finally:
        cancel_alarm()


class OpenStore(partial[None]):
    """Opens a store on disk; with asyncio in a thread, because a long replay takes a while."""


class LocalConnection(Connection):
    """Runs verbs in the calling thread."""

    def __init__(self, on_close: Callable[[], None] | None = None) -> None:
        self._on_close = on_close

    def do(self, request: Step[R]) -> R:
        return request()

    def wake(self, verbs: LocalVerbs[Any]) -> None:
        verbs.wake()

    def close(self) -> None:
        if self._on_close is not None:
            self._on_close()


class AsyncLocalConnection(AsyncConnection):
    """Runs verbs on an event loop, without blocking it while the disk syncs."""

    def __init__(self, verbs: LocalVerbs[Any], on_close: Callable[[], None] | None = None) -> None:
        self._verbs = verbs
        self._on_close = on_close

    async def do(self, request: Any) -> Any:
        self._moved()
        if isinstance(request, Receive):
            return await request.in_task()
        if isinstance(request, OpenStore):
            return await asyncio.to_thread(request)
        store = self._verbs.session.store
        return await store.confirmed(request) if store.waits else request()

    async def wake(self, verbs: LocalVerbs[Any]) -> None:
        verbs.wake()

    async def close(self) -> None:
        if self._on_close is not None:
            await asyncio.to_thread(self._on_close)
