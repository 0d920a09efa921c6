"""The server side of the private protocol (`mailbox.broker.wire`) of `BrokerMailbox`.

Commands run on the sessions of the broker's store; a response waits until its writes are
confirmed. The last response of each channel is kept, so a request that is retried because its
connection broke is not executed twice. Messages that a client did not get because it disconnected
return to the front of the queue without counting as a delivery.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pillarbox.broker.access import Principal
from pillarbox.broker.errors import SqsError
from pillarbox.broker.history import History
from pillarbox.broker.http import Answer, Request, Response
from pillarbox.broker.native_protocol import HEADERS, NativeProtocol, response
from pillarbox.broker.native_receive import (
    AT_ONCE_MAX,
    LARGE_BATCH,
    MICROSECOND_NS,
    NativeReceive,
    render,
)
from pillarbox.broker.pauses import Pauses
from pillarbox.broker.peek import answer_peek, peek_leases
from pillarbox.broker.recent_answers import RecentAnswers
from pillarbox.broker.reply_queues import ReplyQueues
from pillarbox.broker.rights import may
from pillarbox.codec import Codec, codec_for
from pillarbox.core import limits
from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxError,
    MailboxStorageError,
    UnknownOutcomeError,
)
from pillarbox.core.queue import Extra, Lease, Settings
from pillarbox.log import LogError
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.broker.errors import QueueNotFoundError
from pillarbox.mailbox.local_verbs import LocalVerbs
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.queue_steps import SLICE
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.verbs import checked_ids
from pillarbox.tracing import accepting

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_BYTES: Codec[bytes] = codec_for(bytes)


class Native(NativeProtocol):
    """Answers `POST /pillarbox/v1/{queue}`."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._store: Store = broker.store
        self._instance = secrets.token_hex(8)
        self._recent_answers = RecentAnswers(self._instance)
        self._slow: dict[tuple[bytes, int], asyncio.Task[Response]] = {}  # by channel and number
        self._history = History(broker.store)
        self.reply_queues = ReplyQueues(broker.store, broker.local)

    def handle(self, request: Request) -> Answer:
        if request.method == "GET" and request.path.startswith("/pillarbox/v1/"):
            return answer_peek(self._broker, request)
        read = self._read(request)
        if isinstance(read, Response):
            return read
        name, principal, asked = read
        running = self._slow.get((asked.channel, asked.number))
        if running is not None:  # a retry while the first still runs
            return asyncio.shield(running)
        try:
            last = self._recent_answers.recall(asked)
        except UnknownOutcomeError as error:
            return response([self._failed(error)] * len(asked.commands))
        if last is None:
            return self._execute(request, asked, name, principal)
        if asked.number < last.number:
            return Response(409, b"this request is older than the last one of its channel")
        return Response(200, last.body, HEADERS, last.confirmation, self._unconfirmed)

    def _execute(
        self, request: Request, asked: wire.Request, name: str, principal: Principal
    ) -> Answer:
        if len(asked.commands) == 1 and isinstance(asked.commands[0], _ALONE):
            return self._alone(request, asked, name, principal)
        if any(map(_is_long, asked.commands)):
            return self._start(asked, self._slowly(asked, name, principal))
        results = [self._outcome(command, name, principal) for command in asked.commands]
        answer = response(results)
        if not wire.LOOKS.issuperset(map(type, asked.commands)):
            answer.confirmation = self._broker.confirmation()
            answer.if_unconfirmed = self._unconfirmed
        self._recent_answers.keep(asked, answer.body, answer.confirmation)
        return answer

    def _alone(
        self, request: Request, asked: wire.Request, name: str, principal: Principal
    ) -> Answer:
        """Answer a command that may wait, for a message or for the disk."""
        command, broker = asked.commands[0], self._broker
        try:
            self._check(command, name, principal)
            if not isinstance(command, wire.Receive):
                return self._read_files(command, name)
            self.reply_queues.polled(name)
            session = self._session(name)
            consumer = broker.consumers.of(request, name, principal.name)
            return NativeReceive(
                broker, self._recent_answers, self._failed, asked, command, session, consumer
            ).answer()
        except (MailboxError, SqsError) as error:
            return response([self._failed(error)])

    async def _read_files(self, command: wire.Command, name: str) -> Response:
        try:
            return response([await self._history.answer(command, name)])
        except MailboxError as error:
            return response([self._failed(error)])

    def _outcome(self, command: wire.Command, name: str, principal: Principal) -> wire.Result:
        try:
            self._check(command, name, principal)
            if type(command) is wire.Hello:
                return wire.Welcome(self._broker.access.new_token(principal))
            if type(command) is wire.Describe:
                return self._broker.health.describe(principal, name)
            return _VERBS[type(command)](self, command, name)
        except (MailboxError, SqsError) as error:
            return self._failed(error)

    def _start(
        self, asked: wire.Request, work: Coroutine[Any, Any, Response]
    ) -> asyncio.Future[Response]:
        """Run a long request to its end, even if its client disconnects: a retry gets the result.

        If it were cancelled, a retry would do again what was done already.
        """
        key = asked.channel, asked.number
        task = self._slow[key] = self._broker.loop.create_task(work)
        task.add_done_callback(lambda _: self._slow.pop(key))
        return asyncio.shield(task)

    async def stop(self) -> None:
        """Cancel the long requests whose clients have disconnected."""
        running = list(self._slow.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _slowly(self, asked: wire.Request, name: str, principal: Principal) -> Response:
        """Run commands that may touch every message, or every queue, with pauses for others."""
        results: list[wire.Result] = []
        try:
            for command in asked.commands:
                if _is_long(command):
                    results.append(await self._long(command, name, principal))
                else:
                    results.append(self._outcome(command, name, principal))
                await self._broker.saved()
        except LogError as error:
            return self._unconfirmed(error)
        answer = response(results)
        self._recent_answers.keep(asked, answer.body)
        return answer

    async def _long(self, command: wire.Command, name: str, principal: Principal) -> wire.Result:
        try:
            self._check(command, name, principal)
            if isinstance(command, wire.ListQueues):
                return await self._list_queues(principal)
            if isinstance(command, wire.Peek):
                return await asyncio.to_thread(self._peek, command, name)
            if isinstance(command, wire.Send):
                return await self._send_many(command, name)
            if isinstance(command, _BY_HANDLES):
                return await self._settle_all(command, name)
            if isinstance(command, wire.Redrive):
                return await self._redrive(command, name, principal)
            if isinstance(command, wire.Drop):
                self._session(name)
                await self._broker.local.drop(self._broker.local.get(name))
                return wire.Done(1)
            assert isinstance(command, wire.Delete)
            steps = self._verbs(name).delete_steps(checked_ids(command.ids))
            return wire.Done(await self._broker.in_slices(steps))
        except (MailboxError, SqsError) as error:
            return self._failed(error)

    async def _settle_all(self, command: Any, name: str) -> wire.Result:
        """Settle a large batch of handles, a few at a time."""
        answers, pauses = list[bool](), Pauses(self._broker)
        for at in range(0, len(command.handles), AT_ONCE_MAX):
            some = msgspec.structs.replace(command, handles=command.handles[at : at + AT_ONCE_MAX])
            answers += cast("wire.Settled", _VERBS[type(command)](self, some, name)).value
            await pauses.pause()
        return wire.Settled(answers)

    def _unconfirmed(self, error: Exception) -> Response:
        """Return the error response for a write that the disk failed to confirm."""
        known = error if isinstance(error, MailboxError) else MailboxStorageError(str(error))
        return response([self._failed(known)])

    def _session(self, name: str) -> QueueSession:
        session = self._store.sessions.get(name)
        if session is None:
            error = QueueNotFoundError(
                f"the broker has no queue {name!r}: open the mailbox again to create it"
            )
            error.instance = self._instance
            raise error
        return session

    def _send(self, command: wire.Send, name: str) -> wire.Result:
        return wire.Sent(self._store.message_ids(self._send_all(command, name)))

    async def _send_many(self, command: wire.Send, name: str) -> wire.Result:
        """Send a large batch in one step, and build the response with pauses."""
        keys = self._send_all(command, name)
        ids, pauses = list[str](), Pauses(self._broker)
        for at in range(0, len(keys), AT_ONCE_MAX):
            await pauses.pause()
            ids += self._store.message_ids(keys[at : at + AT_ONCE_MAX])
        return wire.Sent(ids)

    def _send_all(self, command: wire.Send, name: str) -> Sequence[int]:
        noted = command.attributes
        if noted is not None:
            limits.attributes(noted)
            longest = max(map(len, command.bodies), default=0)
            limits.message_bytes("attributes", longest, noted, limits.BODY_BYTES_MAX)
        group, deduplication = command.group, command.deduplication
        extra: Callable[[], Extra] | None = None
        if group is not None or deduplication is not None:
            extra = lambda: Extra(group=group, deduplication=deduplication)  # noqa: E731
        delay = command.delay_us * MICROSECOND_NS
        session, bodies = self._session(name), command.bodies
        with accepting(name, noted):
            return session.send(bodies, command.priority, delay, noted, extra)

    def _settle(
        self, handles: list[str], name: str, verb: Callable[[QueueSession, list[Lease]], list[bool]]
    ) -> wire.Settled:
        session = self._session(name)
        found = [self._store.lease_of(session.queue, handle) for handle in handles]
        leases = [lease for lease in found if lease is not None]
        if len(leases) == len(found):
            return wire.Settled(verb(session, leases))
        answers = iter(verb(session, leases))
        return wire.Settled([lease is not None and next(answers) for lease in found])

    def _peek(self, command: wire.Peek, name: str) -> wire.Result:
        session, room = self._session(name), wire.ANSWER_BYTES_MAX
        found = peek_leases(session, command.state, command.count, command.skip, room)
        return wire.Delivered([render(session, *each) for each in found])

    async def _redrive(self, command: wire.Redrive, name: str, principal: Principal) -> wire.Result:
        def allow(targets: Iterable[str]) -> None:
            self._broker.rights.check_move(principal, targets)

        verbs, looked = self._verbs(name), 0
        verbs.check_target(command.to)
        ids = None if command.ids is None else checked_ids(command.ids)
        left = verbs.session.counts()[0] - command.skip

        def steps() -> Iterator[int]:
            nonlocal looked
            limit, skip = command.limit, command.skip
            parts = verbs.redrive_steps(ids, command.to, allow=allow, limit=limit, skip=skip)
            for seen, moved in parts:
                looked += seen
                yield moved

        moved = await self._broker.in_slices(steps())
        if command.limit is None:
            return wire.Done(moved)
        return wire.Moved(moved, looked - moved, max(0, left - looked))

    def _verbs(self, name: str) -> LocalVerbs[bytes]:
        return LocalVerbs(self._session(name), _BYTES)

    def _declare(self, command: wire.Declare, name: str) -> wire.Result:
        if not command.create:
            return self._declared(self._session(name))
        store, policy = self._store, command.policy
        settings = Settings(
            redelivery=command.redelivery, capacity=command.capacity, fair=command.fair
        )
        if policy is None and not command.immortal:
            session = self._broker.local.session(name, settings)
        else:
            session = store.session(name, settings)
        if policy is not None:
            store.set_dead_letters(session, store.session(policy.name), policy.max_deliveries)
        self.reply_queues.declared(name)
        return self._declared(session)

    def _declared(self, session: QueueSession) -> wire.Result:
        dead = session.dead.queue.name if session.dead is not None else None
        return wire.Declared(self._instance, None, dead)

    def _pause(self, command: wire.Pause, name: str) -> wire.Result:
        self._store.pause(self._session(name), paused=command.paused)
        return wire.Done(1)

    async def _list_queues(self, principal: Principal) -> wire.Result:
        lines: list[wire.QueueLine] = []
        for name in sorted(self._store.sessions):
            session = self._store.sessions.get(name)
            # A line shows more than the name, so it takes another right.
            if session is not None and may(principal, "GetQueueAttributes", name):
                lines.append(_line(session))
                if len(lines) % SLICE == 0:
                    await asyncio.sleep(0)
        return wire.ListedQueues(lines)


def _line(session: QueueSession) -> wire.QueueLine:
    settings = session.queue.settings
    dead = session.dead.queue.name if session.dead is not None else None
    most, paused = settings.max_deliveries, settings.paused
    return wire.QueueLine(session.queue.name, session.counts(), dead, most, paused)


def _not_alone() -> wire.Result:
    """Return the error for a command that may block, and so must be alone in its request."""
    raise InvalidParameterError(
        "commands", "a receive or a look at the history among others", "one of these alone"
    )


_ALONE = (wire.Receive, wire.Outline, wire.Recall, wire.ListFiles, wire.ReadFile)
_VERBS: dict[type[wire.Command], Callable[[Native, Any, str], wire.Result]] = {
    wire.Send: Native._send,
    wire.Acknowledge: lambda n, c, q: n._settle(c.handles, q, QueueSession.acknowledge),
    wire.Nack: lambda n, c, q: n._settle(
        c.handles, q, lambda session, leases: session.nack(leases, c.delay_us * MICROSECOND_NS)
    ),
    wire.Extend: lambda n, c, q: n._settle(
        c.handles, q, lambda session, leases: session.extend(leases, c.timeout_us * MICROSECOND_NS)
    ),
    wire.Release: lambda n, c, q: n._settle(
        c.handles, q, lambda session, leases: session.release(leases, to_front=c.to_front)
    ),
    wire.Reject: lambda n, c, q: n._settle(
        c.handles, q, lambda session, leases: session.reject(leases, c.reason)
    ),
    wire.Purge: lambda n, c, q: wire.Done(n._session(q).purge()),
    wire.Tally: lambda n, c, q: wire.Tallied(n._session(q).counts()),
    wire.Declare: Native._declare,
    wire.Pause: Native._pause,
    **dict.fromkeys(_ALONE, lambda n, c, q: _not_alone()),
}
_BY_HANDLES = (wire.Acknowledge, wire.Nack, wire.Extend, wire.Release, wire.Reject)
_LONG = frozenset((wire.Delete, wire.Drop, wire.Redrive, wire.ListQueues, wire.Peek))


def _is_long(command: wire.Command) -> bool:
    """Whether a command may run long."""
    if isinstance(command, wire.Send):
        return len(command.bodies) > LARGE_BATCH
    if isinstance(command, _BY_HANDLES):
        return len(command.handles) > LARGE_BATCH
    return type(command) in _LONG
