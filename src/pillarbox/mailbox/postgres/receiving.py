"""Receiving: a claim, a wait while there is nothing, and bodies that decode or not.

A body that does not decode is never lost: it is logged, and dead-lettered by policy.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any, Generic, TypeVar

from msgspec import Struct

from pillarbox.core.errors import MailboxFullError, SerializationError
from pillarbox.mailbox.answers import quoted
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.call import Call, Wait
from pillarbox.mailbox.postgres.sending import Sender
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.verbs import Body

T = TypeVar("T")

_CLAIM = (
    "SELECT * FROM pillarbox.claim(%s::integer, %s::integer, %s::bigint, %s::bytea, %s::bigint[], "
    "%s::bigint, %s::bigint, %s::boolean, %s::boolean, %s::integer, %s)"
)
FINISH = (
    "SELECT live_ FROM pillarbox.finish(%s::integer, %s, %s::bigint, %s::bytea, %s::bigint[], "
    "%s::bytea[], %s::bigint)"
)
_SECOND_US = 1_000_000
_NAP_SECONDS = 0.005  # while a sender has yet to commit; then doubled
_NAP_SECONDS_MAX = 1.0
_tickets = count(1)
_in_line = itemgetter(wire.RANK, wire.PLACE)


class Found(Struct):
    """The answer of one claim."""

    rows: list[wire.Row]
    token: bytes
    now: int
    quiet: bool
    crowded: bool
    due: int | None


class Receiver(Sender[T], Generic[T]):
    """Takes messages out, or looks at them."""

    in_flight_max: int | None = None

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
            if not entered:  # while a process is parked, all senders have to notify it
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
        start: Any,
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
        theirs = last[wire.REASON]  # of an attempt that was made before: nothing was looked for
        ranks = [] if theirs else [row[wire.RANK] for row in rows]
        self.low_water.learn(start, ranks, rewinds, since)
        at = None if due is None else int(due)
        return Found(rows, theirs or token, now, bool(quiet), bool(crowded), at)

    def _closed_after(
        self, position: int | None, seconds: float, due: float | None, ticket: int
    ) -> Verb[bool]:
        """Wait until there may be something; whether the mailbox was closed meanwhile."""
        assert self.queue_id is not None
        yield Wait(self.name, self.queue_id, position, seconds, due, lambda: self.closed, ticket)
        return self.closed

    def _give_back(self, token: bytes, rows: Any) -> Verb[None]:
        """Undo a claim that nobody saw."""
        if not rows or len(rows) == 1:
            return
        ids = [row[wire.ID] for row in sorted(rows[:-1], key=_in_line, reverse=True)]
        tokens = [rows[-1][wire.REASON] or token] * len(ids)
        yield self.call(FINISH, "front", "0", None, wire.array(ids), tokens, "0")

    def _messages(self, rows: list[wire.Row], token: bytes, mailbox: Any) -> Verb[list[Any]]:
        deliveries = [wire.Delivery(row[wire.ID], token, _bare(row)) for row in rows]
        numbers = [row[wire.DELIVERIES] + 1 for row in rows]
        return self.received(mailbox, deliveries, numbers, list(map(self._read, rows)))

    def _read(self, row: wire.Row) -> Body:
        """The body of a message as this mailbox reads it."""
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
        """A message that is looked at, not held."""
        data = self._read(row)
        if isinstance(data, SerializationError):
            row = (*row[: wire.HEAD], None, *row[wire.BODY :])
        delivery = wire.Delivery(row[wire.ID], b"", _bare(row))
        number = row[wire.DELIVERIES] + extra
        return self.peeked(mailbox, delivery, number, data, row[wire.BODY])


def _bare(row: wire.Row) -> wire.Row:
    """A row without its body, which a message has already."""
    return (*row[: wire.BODY], None, *row[wire.ATTEMPTS :])
