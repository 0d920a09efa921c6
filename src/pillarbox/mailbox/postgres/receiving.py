"""Receiving: a claim, a wait while there is nothing, and bodies that decode or not.

A body that does not decode is never lost: it is logged, and dead-lettered by policy.
"""

from __future__ import annotations

import os
from itertools import count
from operator import itemgetter
from typing import Any, Generic, TypeVar

from pillarbox.codec import QUICK_ERRORS
from pillarbox.core.errors import SerializationError
from pillarbox.mailbox.answers import quoted
from pillarbox.mailbox.message import Undecodable
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.call import Call, Wait
from pillarbox.mailbox.postgres.sending import Sender
from pillarbox.mailbox.runner import Verb

T = TypeVar("T")

_CLAIM = (
    "SELECT * FROM pillarbox.claim(%s::integer, %s::integer, %s::bigint, %s::bytea, %s::bigint[], "
    "%s::bigint, %s::bigint, %s::boolean, %s::boolean)"
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


class Found:
    """The answer of one claim."""

    __slots__ = ("due", "now", "quiet", "rows")

    def __init__(self, rows: list[wire.Row], now: int, quiet: bool, due: int | None) -> None:
        self.rows = rows
        self.now = now
        self.quiet = quiet
        self.due = due


class Receiver(Sender[T], Generic[T]):
    """Takes messages out, or looks at them."""

    def _receive(self, mailbox: Any, count: int, timeout: int, wait: int) -> Verb[list[Any]]:
        lease = wire.microseconds(timeout)
        wait_us = int(wire.microseconds(wait))
        till: int | None = None
        position: int | None = None
        entered, nap, ticket = False, _NAP_SECONDS, next(_tickets)
        while True:
            token = os.urandom(16)
            start = self.low_water.start(parking=entered)
            found = yield from self._claim(count, lease, token, start, entered, wait > 0)
            if found.rows:
                messages = yield from self._messages(found.rows, token, mailbox)
                if messages:
                    return messages
                continue
            till = found.now + wait_us if till is None else till
            left = (till - found.now) / _SECOND_US
            if left <= 0 or self.closed:
                return []
            if not entered:
                position = yield Call(self.name, "", enter=self.queue_id)
                entered = True
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
        self, count: int, lease: str, token: bytes, start: Any, parked: bool, waits: bool
    ) -> Verb[Found]:
        arguments = str(count), lease, token, start.marks, str(start.rewinds), str(start.since)
        call = self.call(_CLAIM, *arguments, parked, waits)
        call.undo = self._give_back
        *rows, last = yield from self.ask(call)
        rows.sort(key=_in_line)
        _, rewinds, since, now, quiet, _, due, *_ = last
        self.low_water.learn(start, [row[wire.RANK] for row in rows], rewinds, since)
        return Found(rows, now, bool(quiet), None if due is None else int(due))

    def _closed_after(
        self, position: int | None, seconds: float, due: float | None, ticket: int
    ) -> Verb[bool]:
        """Wait until there may be something; whether the mailbox was closed meanwhile."""
        assert self.queue_id is not None
        yield Wait(self.name, self.queue_id, position, seconds, due, lambda: self.closed, ticket)
        return self.closed

    def _give_back(self, rows: Any) -> Verb[None]:
        """Undo a claim that nobody saw."""
        if not rows or len(rows) == 1:
            return
        ids = [row[wire.ID] for row in sorted(rows[:-1], key=_in_line, reverse=True)]
        statement = (
            "SELECT pillarbox.finish(%s::integer, 'front', 0, NULL, array_agg(id ORDER BY n), "
            "array_agg(token ORDER BY n), 0) FROM pillarbox.messages JOIN "
            "unnest(%s::bigint[]) WITH ORDINALITY AS given (id, n) USING (id)"
        )
        yield self.call(statement, wire.array(ids))

    def _messages(self, rows: list[wire.Row], token: bytes, mailbox: Any) -> Verb[list[Any]]:
        """The messages of these leases; those that don't decode are seen to and left out."""
        unpack, kind = self.codec.quick_decode, mailbox._kind
        messages = []
        for row in rows:
            try:
                body = row[wire.BODY]
                if row[wire.HEAD] is not None:
                    body = self._read(row)
                delivery = wire.Delivery(row[wire.ID], token, _bare(row))
                number = row[wire.DELIVERIES] + 1
                messages.append(kind(unpack(body), number, delivery, mailbox))
            except (*QUICK_ERRORS, TypeError):
                yield from self._bury(row, token)
        return messages

    def _read(self, row: wire.Row) -> bytes:
        """The body of a message as this mailbox reads it."""
        noted = wire.attributes_in(row[wire.HEAD])
        body: bytes = row[wire.BODY]
        return quoted(body, noted) if self.reads_json else body

    def _bury(self, row: wire.Row, token: bytes) -> Verb[None]:
        error: Exception = SerializationError("the body does not decode")
        try:
            self.codec.decode(self._read(row))
        except SerializationError as failed:
            error = failed
        settings = yield from self._declare()
        dead = settings.dead is not None
        self.log_undecodable(wire.public_id(row[wire.ID]), error, dead_lettered=dead)
        if dead:
            reason = f"undecodable: {error}".encode()
            ids = wire.array([row[wire.ID]])
            since = str(self.low_water.since)
            yield from self.ask(self.call(FINISH, "reject", "0", reason, ids, [token], since))

    def _seen(self, row: wire.Row, extra: int, mailbox: Any) -> Any:
        """A message that is looked at, not held."""
        body: T | Undecodable
        try:
            body = self.body_or_undecodable(self._read(row))
        except SerializationError as error:
            row = (*row[: wire.HEAD], None, *row[wire.BODY :])
            body = Undecodable(row[wire.BODY], str(error))
        delivery = wire.Delivery(row[wire.ID], b"", _bare(row))
        return mailbox._kind(body, row[wire.DELIVERIES] + extra, delivery, mailbox)


def _bare(row: wire.Row) -> wire.Row:
    """A row without its body, which a message has already."""
    return (*row[: wire.BODY], None, *row[wire.ATTEMPTS :])
