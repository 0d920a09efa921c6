"""One queue: opening it, calling its functions, sending and receiving messages.

A receive claims messages, and waits while there are none. A body that does not decode is logged,
and dead-lettered by policy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Self, TypeVar

from msgspec import Struct

from pillarbox.codec import Codec
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError, MailboxFullError, SerializationError
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, answer, dropped, is_reply_queue, quoted
from pillarbox.mailbox.options import default_redelivery
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.call import Call, Initialise, Wait
from pillarbox.mailbox.postgres.errors import QueueDeletedError, SchemaMissingError
from pillarbox.mailbox.postgres.low_water import LowWater, Start
from pillarbox.mailbox.postgres.schema import VERSION
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.store import no_queue
from pillarbox.mailbox.verbs import Body, Outgoing, Verbs

T = TypeVar("T")

_DECLARE = (
    "SELECT s.version, q.* FROM pillarbox.schema_version s LEFT JOIN pillarbox.declare_queue("
    "%s, %s::boolean, %s, %s::bigint, %s::boolean, %s::integer, %s, %s::boolean) q ON true"
)
_SEND = (
    "SELECT ids_, until_ FROM pillarbox.send(%s::integer, %b::bytea[], %s::bytea, %s::integer, "
    "%s::bigint, %s, %s, %s::bigint, %s::bigint, %s::boolean)"
)
_DEDUPLICATION_US = str(limits.DEDUPLICATION_SECONDS * 1_000_000)
_CLAIM = (
    "SELECT * FROM pillarbox.claim(%s::integer, %s::integer, %s::bigint, %s::bytea, %s::bigint[], "
    "%s::bigint, %s::bigint, %s::boolean, %s::boolean, %s::integer, %s)"
)
FINISH = (
    "SELECT pillarbox.finish(%s::integer, %s, %s::bigint, %s::bytea, %s::bigint[], "
    "%s::bytea[], %s::bigint)"
)
_SECOND_US = 1_000_000
_NAP_SECONDS = 0.005  # while a sender has not committed yet; then doubled
_NAP_SECONDS_MAX = 1.0
_tickets = count(1)
_in_line = itemgetter(wire.RANK, wire.PLACE)


class Settings(NamedTuple):
    """The settings of a queue, from when it was first opened."""

    queue_id: int
    redelivery: str
    capacity: int | None
    history: bool
    max_deliveries: int
    dead: str | None


class Found(Struct):
    """The result of one claim."""

    rows: list[wire.Row]
    token: bytes
    now: int
    quiet: bool
    crowded: bool
    due: int | None


class MessageVerbs(Verbs[T, wire.Delivery], Generic[T]):
    """The verbs that open a queue, send, receive and peek."""

    in_flight_max: int | None = None

    def __init__(self, name: str, database: str, codec: Codec[T], max_body_bytes: int) -> None:
        super().__init__(name, codec, max_body_bytes)
        self.database = database  # connection string for libpq
        self.wanted: Mapping[str, Any] = {}  # the options to open the queue with
        self.settings: Settings | None = None
        self.queue_id: int | None = None  # once it is open
        self.low_water = LowWater()
        self.connection: Any = None  # the caller's connection, to use its transaction

    def within(self, connection: Any) -> Self:
        """Return a copy of these verbs that runs in the transaction of a psycopg connection."""
        verbs = copy(self)
        verbs.connection = connection
        return verbs

    @property
    def identity(self) -> object:
        return self.database, self.name

    def open(self) -> Verb[None]:
        try:
            yield from self._declare()
        except SchemaMissingError:
            yield Initialise(self.name)
            yield from self._declare()

    def _declare(self) -> Verb[Settings]:
        """Open the queue. An existing queue takes only `dead_letters` and `history`."""
        wanted = self.wanted
        policy: DeadLetterPolicy | None = wanted.get("dead_letters")
        capacity = wanted.get("capacity")
        create = wanted.get("create", True)
        ((version, *found),) = yield Call(
            self.name,
            _DECLARE,
            (
                self.name,
                create,
                default_redelivery(wanted),
                None if capacity is None else str(capacity),
                wanted.get("history", False),
                "0" if policy is None else str(policy.max_deliveries),
                None if policy is None else policy.queue_of(self.name),
                wanted.get("fair", False),
            ),
        )
        if version < VERSION:
            raise SchemaMissingError(
                f"mailbox {self.name!r}: the schema in this database has version {version}, this "
                f"Pillarbox needs {VERSION}: run `pillarbox postgres init URL`"
            )
        if found[0] is None:
            raise no_queue(self.name)
        self.settings = Settings(*found)
        self.queue_id = self.settings.queue_id
        return self.settings

    def call(self, statement: str, *parameters: Any) -> Call:
        """Return a call of a statement whose first parameter is this queue."""
        parameters = str(self.queue_id), *parameters
        return Call(self.name, statement, parameters, connection=self.connection)

    def ask(self, call: Call) -> Verb[Any]:
        """Run a call and return its rows. If the queue was deleted, create it with defaults."""
        if self.settings is None:
            yield from self.open()
            call.parameters = str(self.queue_id), *call.parameters[1:]
        try:
            return (yield call)
        except QueueDeletedError:
            if call.connection is not None:
                raise
        self.wanted = {}
        self.low_water = LowWater()
        yield from self._declare()
        call.parameters = str(self.queue_id), *call.parameters[1:]
        return (yield call)

    def _send(self, sent: Outgoing) -> Verb[list[str]]:
        if not sent.bodies:
            return []
        call = self.call(
            _SEND,
            wire.ByteArray(sent.bodies),
            wire.packed(sent.attributes) if sent.attributes else None,
            str(sent.priority),
            wire.microseconds(sent.delay),
            sent.group,
            sent.deduplication_id,
            _DEDUPLICATION_US,
            str(self.low_water.since),
            self.connection is None,
        )
        call.repeatable = sent.deduplication_id is not None
        ids, until = (yield from self.ask(call))[0]
        if self.connection is None:
            self.low_water.since = until
        return [wire.public_id(number) for number in ids]

    def answer(self, in_reply_to: str, body: Any) -> Verb[str]:
        """Send `body` as the reply to a message."""
        data, noted = answer(in_reply_to, body)
        limits.body_bytes(data, self.max_body_bytes)
        if is_reply_queue(self.name):
            self.wanted = {"create": False}
            try:
                yield from self._declare()
            except InvalidParameterError:  # only a client creates it, and it has closed
                return dropped(self.name, in_reply_to)
        ids = yield from self._send(Outgoing([data], attributes=noted))
        return ids[0]

    def expire(self) -> Verb[None]:
        """Renew the expiry of a reply queue, which ends if its client is gone."""
        statement = "SELECT pillarbox.expire_queue(%s, %s::integer)"
        yield Call(self.name, statement, (self.name, str(IDLE_SECONDS_MAX)))

    # -- receiving ------------------------------------------------------------------------------

    def _receive(
        self, mailbox: Any, count: int, timeout: int, wait: int, attempt: str | None = None
    ) -> Verb[list[Any]]:
        lease = wire.microseconds(timeout)
        wait_us = int(wire.microseconds(wait))
        till: int | None = None
        position: int | None = None
        parking = entered = False
        nap, ticket = _NAP_SECONDS, next(_tickets)
        while True:
            token = os.urandom(16)
            start = self.low_water.start(parking=parking)
            found = yield from self._claim(count, lease, token, start, entered, wait > 0, attempt)
            if found.rows:
                messages = yield from self._messages(found.rows, found.token, mailbox)
                if messages:
                    return messages
                continue
            till = found.now + wait_us if till is None else till
            left = (till - found.now) / _SECOND_US
            if found.crowded and left <= 0:
                raise MailboxFullError(f"too many messages of {self.name!r} are in flight")
            if left <= 0 or self.closed:
                return []
            if not entered:  # register late: while a process is parked, all senders must notify it
                if parking or start.whole:
                    position = yield Call(self.name, "", enter=self.queue_id)
                    entered = True
                parking = True
                continue
            due = None if found.due is None else max(0.001, (found.due - found.now) / _SECOND_US)
            seconds = left
            if position is not None and not found.quiet:
                seconds, nap = min(left, nap), min(2 * nap, _NAP_SECONDS_MAX)
            elif not start.whole:
                seconds = min(left, self.low_water.seconds_to_whole() + 0.001)
            if (yield from self._closed_after(position, seconds, due, ticket)):
                return []
            position = yield Call(self.name, "", enter=self.queue_id)

    def _claim(
        self,
        count: int,
        lease: str,
        token: bytes,
        start: Start,
        parked: bool,
        waits: bool,
        attempt: str | None,
    ) -> Verb[Found]:
        arguments = str(count), lease, token, start.marks, str(start.rewinds), str(start.since)
        limit = None if self.in_flight_max is None else str(self.in_flight_max)
        call = self.call(_CLAIM, *arguments, parked, waits, limit, attempt)
        call.undo = partial(self._give_back, token)
        *rows, last = yield from self.ask(call)
        rows.sort(key=_in_line)
        _, rewinds, since, now, quiet, crowded, due, *_ = last
        theirs = last[wire.REASON]  # a repeated attempt: nothing was scanned
        ranks = [] if theirs else [row[wire.RANK] for row in rows]
        self.low_water.learn(start, ranks, rewinds, since)
        at = None if due is None else int(due)
        return Found(rows, theirs or token, now, bool(quiet), bool(crowded), at)

    def _closed_after(
        self, position: int | None, seconds: float, due: float | None, ticket: int
    ) -> Verb[bool]:
        """Wait until messages may be ready; return whether the mailbox was closed meanwhile."""
        assert self.queue_id is not None
        yield Wait(self.name, self.queue_id, position, seconds, due, lambda: self.closed, ticket)
        return self.closed

    def _give_back(self, token: bytes, rows: Any) -> Verb[None]:
        """Return messages of a claim whose caller was cancelled."""
        if not rows or len(rows) == 1:
            return
        ids = [row[wire.ID] for row in sorted(rows[:-1], key=_in_line, reverse=True)]
        tokens = wire.ByteArray([rows[-1][wire.REASON] or token] * len(ids))
        yield self.call(FINISH, "front", "0", None, wire.array(ids), tokens, "0")

    def _messages(self, rows: list[wire.Row], token: bytes, mailbox: Any) -> Verb[list[Any]]:
        deliveries = [wire.Delivery(row[wire.ID], token, _bare(row)) for row in rows]
        numbers = [row[wire.DELIVERIES] + 1 for row in rows]
        return self.received(mailbox, deliveries, numbers, list(map(self._read, rows)))

    def _read(self, row: wire.Row) -> Body:
        """Return the body of a message in the form this mailbox decodes."""
        body: bytes = row[wire.BODY]
        if row[wire.HEAD] is None:
            return body
        try:
            noted = wire.attributes_in(row[wire.HEAD])
        except SerializationError as error:
            return error
        return quoted(body, noted) if self.reads_json else body

    def has_dead_letters(self) -> Verb[bool]:
        return (yield from self._declare()).dead is not None

    def _seen(self, row: wire.Row, extra: int, mailbox: Any) -> Any:
        """Return a peeked message."""
        data = self._read(row)
        if isinstance(data, SerializationError):
            row = (*row[: wire.HEAD], None, *row[wire.BODY :])
        delivery = wire.Delivery(row[wire.ID], b"", _bare(row))
        number = row[wire.DELIVERIES] + extra
        return self.peeked(mailbox, delivery, number, data, row[wire.BODY])


def _bare(row: wire.Row) -> wire.Row:
    """Return a row without its body, which the message already has."""
    return (*row[: wire.BODY], None, *row[wire.ATTEMPTS :])
