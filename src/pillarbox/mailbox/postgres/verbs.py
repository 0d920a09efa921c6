"""The verbs of a mailbox on PostgreSQL, except sending and receiving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from pillarbox.core import limits
from pillarbox.mailbox.message import Details
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.call import Call
from pillarbox.mailbox.postgres.messages import FINISH, MessageVerbs
from pillarbox.mailbox.protocol import State, Stats
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.verbs import Where, handle_of, in_pages, no_target, settled

T = TypeVar("T")

_PAGE = 500
_ACKNOWLEDGE = "SELECT pillarbox.acknowledge(%s::integer, %s::bigint[], %s::bytea[], %s::bigint)"
_EXTEND = "SELECT pillarbox.extend(%s::integer, %s::bigint, %s::bigint[], %s::bytea[])"
_PEEK_READY = wire.rows_of("peek_ready(%s::integer, %s::integer)")
_PEEK_TIMED = wire.rows_of("peek_timed(%s::integer, %s::smallint[], %s::integer)")
_NEXT_PAGE = wire.rows_of("page(%s::integer, %s::bigint, %s::bigint, %s::integer)")
_EXISTS = "SELECT 1 FROM pillarbox.queues WHERE name = %s"
TIMED: dict[State, str] = {"scheduled": "{2,3}", "in_flight": "{1}"}


class PostgresVerbs(MessageVerbs[T], Generic[T]):
    """The verbs of one mailbox object."""

    def beside(self, name: str) -> PostgresVerbs[T]:
        """Return the verbs of another queue in the same database, with the same type and limits."""
        return PostgresVerbs(name, self.database, self.codec, self.max_body_bytes)

    def dead_letters(self) -> PostgresVerbs[T] | None:
        dead = self.settings.dead if self.settings is not None else None
        return None if dead is None else self.beside(dead)

    def keep_for_answers(self) -> Verb[None]:
        yield from self._declare()
        yield from self.expire()

    def delete_queue(self) -> Verb[None]:
        yield Call(self.name, "SELECT pillarbox.drop_queue(%s)", (self.name,))

    def _reply(self, to: str, in_reply_to: str, body: Any) -> Verb[str]:
        answers = self.beside(limits.queue_name(to, "reply_to"))
        return (yield from answers.answer(in_reply_to, body))

    def acknowledge(self, deliveries: Sequence[wire.Delivery]) -> Verb[list[bool]]:
        return self._settle(_ACKNOWLEDGE, (), deliveries, (str(self.low_water.since),))

    def _nack(self, deliveries: Sequence[wire.Delivery], delay: int) -> Verb[list[bool]]:
        return self._finish("nack", wire.microseconds(delay), None, deliveries)

    def _extend(self, deliveries: Sequence[wire.Delivery], timeout: int) -> Verb[list[bool]]:
        return self._settle(_EXTEND, (wire.microseconds(timeout),), deliveries, ())

    def release(self, deliveries: Sequence[wire.Delivery]) -> Verb[list[bool]]:
        return self._finish("release", "0", None, deliveries)

    def _reject(self, deliveries: Sequence[wire.Delivery], reason: str) -> Verb[list[bool]]:
        return self._finish("reject", "0", reason.encode(), deliveries)

    def _finish(
        self, how: str, delay: str, reason: bytes | None, deliveries: Sequence[wire.Delivery]
    ) -> Verb[list[bool]]:
        since = str(self.low_water.since)
        return self._settle(FINISH, (how, delay, reason), deliveries, (since,))

    def _settle(
        self,
        statement: str,
        before: tuple[Any, ...],
        deliveries: Sequence[wire.Delivery],
        after: tuple[Any, ...],
    ) -> Verb[list[bool]]:
        if not deliveries:
            return []
        ids = wire.array([each.id for each in deliveries])
        tokens = wire.ByteArray([each.token for each in deliveries])
        call = self.call(statement, *before, ids, tokens, *after)
        live = set((yield from self.ask(call))[0][0] or ())
        result, seen = [], set()
        for position, each in enumerate(deliveries, 1):
            result.append(position in live and each.id not in seen)  # a duplicate is settled once
            if result[-1]:
                seen.add(each.id)
        return settled(self.name, result, call.doubtful)

    def _purge(self) -> Verb[int]:
        rows = yield from self.ask(self.call("SELECT pillarbox.purge(%s::integer)"))
        count: int = rows[0][0]
        return count

    def stats(self) -> Verb[Stats]:
        """Return the current counts of the queue, without writing."""
        rows = yield from self.ask(self.call("SELECT * FROM pillarbox.stats(%s::integer)"))
        now, ready, scheduled, in_flight, dead, oldest = rows[0]
        age = None if oldest is None else max(0, now - oldest) / 1_000_000
        return Stats(ready, scheduled, in_flight, dead, age)

    def _peek(self, mailbox: Any, count: int, state: State) -> Verb[list[Any]]:
        if state == "ready":
            call = self.call(_PEEK_READY, str(count))
        else:
            call = self.call(_PEEK_TIMED, TIMED[state], str(count))
        rows = yield from self.ask(call)
        extra = int(state == "in_flight")
        return [self._seen(row, extra, mailbox) for row in rows]

    def _delete(self, ids: list[str]) -> Verb[int]:
        numbers = [number for each in ids if (number := wire.number_of(each)) is not None]
        count = 0
        statement = "SELECT pillarbox.delete_messages(%s::integer, %s::bigint[])"
        for page in in_pages(numbers, _PAGE):
            count += (yield from self.ask(self.call(statement, wire.array(page))))[0][0]
        return count

    def _redrive(
        self, mailbox: Any, ids: list[str] | None, where: Where | None, to: str | None
    ) -> Verb[int]:
        if to is not None and not (yield Call(to, _EXISTS, (to,))):
            raise no_target(to)
        yield from self.ask(self.call("SELECT pillarbox.tick(%s::integer)"))
        wanted = None
        if ids is not None:
            wanted = [number for each in ids if (number := wire.number_of(each)) is not None]
        if wanted is None or where is not None:
            wanted = yield from self._choose(wanted, where, mailbox)
        count = 0
        statement = "SELECT pillarbox.redrive(%s::integer, %s, %s::bigint[])"
        for page in in_pages(wanted, _PAGE):
            count += (yield from self.ask(self.call(statement, to, wire.array(page))))[0][0]
        return count

    def _choose(
        self, wanted: list[int] | None, where: Where | None, mailbox: Any
    ) -> Verb[list[int]]:
        """Return the ids of ready messages that are `wanted` and match `where`, page by page."""
        among = None if wanted is None else set(wanted)
        chosen: list[wire.Row] = []
        last = "-1", "0"
        while True:
            rows = yield from self.ask(self.call(_NEXT_PAGE, *last, str(_PAGE)))
            for row in rows:
                if among is not None and row[wire.ID] not in among:
                    continue
                if where is None or where(self._seen(row, 0, mailbox)):
                    chosen.append((-row[wire.PRIORITY], row[wire.PLACE], row[wire.ID]))
            if len(rows) < _PAGE:  # the head of a group may have a late rank, but not place
                return [number for _, _, number in sorted(chosen)]
            last = str(rows[-1][wire.RANK]), str(rows[-1][wire.ID])

    def message_id(self, delivery: wire.Delivery) -> str:
        return wire.public_id(delivery.id)

    def receipt_handle(self, delivery: wire.Delivery) -> str:
        return handle_of(wire.public_id(delivery.id).encode(), delivery.token)

    def details(self, delivery: wire.Delivery) -> Details:
        return wire.details(delivery)
