"""What the verbs of a mailbox on Redis do, as plans: the same for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import Delivered
from pillarbox.mailbox.protocol import DeadLetterPolicy, State, Stats
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.errors import OutcomeUnknownError
from pillarbox.mailbox.redis.keys import DEAD
from pillarbox.mailbox.redis.plan import Plan
from pillarbox.mailbox.redis.queue import RedisQueue
from pillarbox.mailbox.redis.receiving import Receiver
from pillarbox.mailbox.redis.sending import Sender
from pillarbox.mailbox.store import no_queue

T = TypeVar("T")

_STATES = ("ready", "scheduled", "in_flight")
_PAGE = 500
_TOLD = 1_000  # leases that ran out, of which stats.lua tells at a time
_YES = ord("1")


class _Tally(NamedTuple):
    """What a queue holds by now."""

    now: int
    ready: int
    scheduled: int
    in_flight: int
    dead: int | bytes  # or the name of their queue, under another tag
    oldest: int
    died: int  # by leases that ran out; not in their queue yet
    came: int  # the same, of the queue whose dead letters come here
    sources: bytes | None


def _tally(queue: RedisQueue) -> Plan[_Tally]:
    died = came = first = 0
    while True:
        reply = yield from queue.ask(queue.call("stats", first))
        now, to_tell, ready, scheduled, in_flight, dead, oldest, *more, sources = reply
        died, came = died + more[0], came + more[1]
        first += _TOLD
        if first >= to_tell:
            break
    counts = ready - died, scheduled, in_flight, dead, oldest, died, came
    return _Tally(now, *counts, sources)


def _found(reply: list[Any]) -> list[tuple[bytes, bytes, bytes | None, bytes | None]]:
    """Id, score, packed message and state of each message that was looked at."""
    taken, values, states, *_ = reply
    return list(zip(taken[::2], taken[1::2], values, states, strict=True))


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
        create: bool = True,
    ) -> Plan[None]:
        """These settings are for a new queue, the dead letters and the journal for any."""
        queue = self.queue
        if not create:
            if not (yield queue.command("EXISTS", queue.place.key("queue"))):
                raise no_queue(queue.name)
            self.settings = yield from queue.declare()
            return
        if dead_letters is not None:
            dead = limits.queue_name(dead_letters.name or queue.name + DEAD)
            yield from queue.declare(redelivery=redelivery, capacity=capacity)
            yield from queue.bury_at(dead, dead_letters.max_deliveries)
        self.settings = yield from queue.declare(
            redelivery=redelivery,
            capacity=capacity,
            journal=journal,
        )

    def keep_for_answers(self) -> Plan[None]:
        """The queue is there, and stays for a while."""
        yield from self.queue.declare(redelivery="tail")
        yield from self.expire()

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
        """What the queue holds by now; nothing is written by looking."""
        queue = self.queue
        found = yield from _tally(queue)
        ready, dead = found.ready + found.came, found.dead
        for source in queue.other_sources(found.sources):
            theirs = yield from _tally(source)
            ready += theirs.died + len((yield from queue.on_the_way_from(source)))
        if isinstance(dead, bytes):
            other = queue.beside(dead.decode())
            dead = yield other.command("HLEN", other.place.key("bodies"))
            dead += len((yield from other.on_the_way_from(queue)))
        age = max(0, found.now - found.oldest) / 1_000_000 if found.oldest else None
        return Stats(ready, found.scheduled, found.in_flight, dead + found.died, age)

    def peek(self, max_messages: int, state: State, kind: Any, backend: object) -> Plan[list[Any]]:
        count = limits.whole("max_messages", max_messages, 1, limits.MESSAGES_MAX)
        limits.one_of("state", state, _STATES)
        reply = yield from self.queue.ask(self.queue.call("peek", state, count))
        found, sources = _found(reply), reply[-1]
        if state == "ready":
            for source in self.queue.other_sources(sources):
                if len(found) < count:
                    theirs = yield from source.ask(source.call("peek", "leaving", count))
                    found += _found(theirs)
                    found += yield from self.queue.on_the_way_from(source)
        extra = int(state == "in_flight")
        return [
            self.seen(message_id, score, value, raw, extra, kind, backend)
            for message_id, score, value, raw in found[:count]
            if value is not None
        ]

    def _settled(self) -> Plan[None]:
        """All that is due happens, under other tags as well."""
        yield from self.queue.carry()
        settings = yield from self.queue.declare()
        if settings.sources:
            yield from self.queue.collect(",".join(settings.sources).encode())

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
        yield from self._settled()
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
