"""What the verbs of a mailbox on Redis do, as plans: the same for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import Delivered
from pillarbox.mailbox.protocol import DeadLetterPolicy, State, Stats
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.errors import OutcomeUnknownError
from pillarbox.mailbox.redis.keys import DEAD
from pillarbox.mailbox.redis.plan import Plan
from pillarbox.mailbox.redis.receiving import Receiver
from pillarbox.mailbox.redis.sending import Sender

T = TypeVar("T")

_STATES = ("ready", "scheduled", "in_flight")
_PAGE = 500
_YES = ord("1")


class Verbs(Sender[T], Receiver[T], Generic[T]):
    """The plans of one mailbox object."""

    def beside(self, name: str) -> Verbs[Any]:
        """The same type and limits, on another queue of the site."""
        other: Verbs[Any] = Verbs(self.queue.beside(name), Any, self.max_body_bytes)
        other.use(self.codec)
        return other

    def open(
        self,
        *,
        dead_letters: DeadLetterPolicy | None = None,
        redelivery: str = "tail",
        capacity: int | None = None,
        journal: bool = False,
    ) -> Plan[None]:
        """These settings are for a new queue, the dead letters and the journal for any."""
        queue = self.queue
        if dead_letters is not None:
            dead = limits.queue_name(dead_letters.name or queue.name + DEAD)
            yield from queue.declare(redelivery=redelivery, capacity=capacity)
            yield from queue.bury_at(dead, dead_letters.max_deliveries)
        self.settings = yield from queue.declare(
            redelivery=redelivery,
            capacity=capacity,
            journal=journal,
        )

    def settle(
        self, script: str, argument: Any, deliveries: list[wire.Delivery]
    ) -> Plan[list[bool]]:
        """Acknowledge, nack, extend, release or reject: an answer for each."""
        if not deliveries:
            return []
        pairs = [part for each in deliveries for part in (each.id, each.token)]
        call = self.queue.call(script, *(() if argument is None else (argument,)), *pairs)
        reply = yield from self.queue.ask(call)
        answers, on_the_way = (reply, 0) if argument is None else reply
        result = [answer == _YES for answer in answers]
        if call.doubtful and not all(result):
            raise OutcomeUnknownError(
                f"mailbox {self.queue.name!r}: the connection was lost while {len(result):,} "
                f"deliveries were settled ({script}), and {result.count(False):,} of them are over "
                "now: by this very call, or because their leases ran out; if it matters, look"
            )
        if on_the_way:
            yield from self.queue.carry()
        return result

    def purge(self) -> Plan[int]:
        count: int = yield from self.queue.ask(self.queue.call("purge"))
        return count

    def stats(self) -> Plan[Stats]:
        queue = self.queue
        reply = yield from self._settled("stats")
        now, _, ready, scheduled, in_flight, dead, oldest, on_the_way, _ = reply
        if on_the_way:
            yield from queue.carry()
        if dead < 0:
            self.settings = yield from queue.declare()
            other = queue.beside(self.settings.dead or "")
            dead = yield other.command("HLEN", other.place.key("bodies"))
        age = max(0, now - oldest) / 1_000_000 if oldest else None
        return Stats(ready, scheduled, in_flight, dead, age)

    def _settled(self, script: str, *arguments: Any) -> Plan[list[Any]]:
        """What a script tells once all that is due has happened, under other tags as well."""
        collected = False
        while True:
            reply: list[Any] = yield from self.queue.ask(self.queue.call(script, *arguments))
            now, following, *_, sources = reply
            if 0 < following <= now:
                continue
            if sources is None or collected or not (yield from self.queue.collect(sources))[0]:
                return reply
            collected = True

    def peek(self, max_messages: int, state: State, kind: Any, backend: object) -> Plan[list[Any]]:
        count = limits.whole("max_messages", max_messages, 1, limits.MESSAGES_MAX)
        limits.one_of("state", state, _STATES)
        reply = yield from self._settled("peek", state, count)
        _, _, taken, values, states, _ = reply
        extra = int(state == "in_flight")
        return [
            self.seen(taken[2 * i], taken[2 * i + 1], value, states[i], extra, kind, backend)
            for i, value in enumerate(values)
            if value is not None
        ]

    def delete(self, ids: Iterable[str]) -> Plan[int]:
        wanted = self.known_ids(ids)
        count = 0
        for first in range(0, len(wanted), _PAGE):
            call = self.queue.call("delete", *wanted[first : first + _PAGE])
            count += yield from self.queue.ask(call)
        return count

    def redrive(
        self,
        ids: Iterable[str] | None,
        where: Callable[[Any], bool] | None,
        to: str | None,
        kind: Any,
        backend: object,
    ) -> Plan[int]:
        if to is not None and limits.queue_name(to, "to") == self.queue.name:
            raise InvalidParameterError("to", to, "the name of another mailbox")
        wanted = None if ids is None else self.known_ids(ids)
        yield from self._settled("stats")
        if wanted is None or where is not None:
            wanted = yield from self._choose(wanted, where, kind, backend)
        count = 0
        for first in range(0, len(wanted), _PAGE):
            call = self.queue.call("redrive", to or "", *wanted[first : first + _PAGE])
            moved, on_the_way = yield from self.queue.ask(call)
            count += moved
            if on_the_way:
                yield from self.queue.carry()
        return count

    def _choose(
        self,
        wanted: list[bytes] | None,
        where: Callable[[Any], bool] | None,
        kind: Any,
        backend: object,
    ) -> Plan[list[bytes]]:
        """The ids of what waits, was asked for and matches, page by page."""
        among = None if wanted is None else set(wanted)
        chosen: dict[bytes, None] = {}
        for part in ("line", "grouped"):
            first = 0
            while True:
                call = self.queue.call("page", part, first, _PAGE)
                ranks, taken, values, states = yield from self.queue.ask(call)
                for i, value in enumerate(values):
                    found = taken[2 * i], taken[2 * i + 1], value, states[i]
                    if value is None or (among is not None and taken[2 * i] not in among):
                        continue
                    if where is None or where(self.seen(*found, 0, kind, backend)):
                        chosen[taken[2 * i]] = None
                first += ranks
                if ranks < _PAGE:
                    break
        return list(chosen)

    def deliveries(self, messages: Iterable[Any]) -> list[wire.Delivery]:
        """What these messages are known by; all must be of this queue."""
        deliveries = []
        ours: object = None
        for message in messages:
            if not isinstance(message, Delivered) or message._mailbox is not ours:
                ours = self._if_ours(message)
            deliveries.append(message._delivery)
        return deliveries

    def _if_ours(self, message: Any) -> object:
        """The mailbox that this message is from."""
        mailbox = getattr(message, "_mailbox", None)
        verbs = getattr(mailbox, "_verbs", None)
        if isinstance(verbs, Verbs) and verbs.queue.name == self.queue.name:
            return mailbox
        raise InvalidParameterError(
            "messages", message, f"messages received from mailbox {self.queue.name!r}"
        )

    def known_ids(self, ids: Iterable[str]) -> list[bytes]:
        if isinstance(ids, str):
            raise InvalidParameterError("ids", ids, "several message ids, not one str")
        return list(dict.fromkeys(limits.text("ids", each, 0).encode() for each in ids))
