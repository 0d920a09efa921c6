"""The verbs of a mailbox on Redis, except sending and receiving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pillarbox.core import limits
from pillarbox.mailbox.message import Details
from pillarbox.mailbox.options import default_redelivery
from pillarbox.mailbox.protocol import DeadLetterPolicy, State, Stats
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.messages import MessageVerbs
from pillarbox.mailbox.redis.queue import RedisQueue
from pillarbox.mailbox.redis.queues import delete
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.store import no_queue
from pillarbox.mailbox.verbs import Where, handle_of, in_pages, no_target, settled

T = TypeVar("T")

_PAGE = 500
_PAGE_OF_LEASES = 1_000  # expired leases that stats.lua examines per call
_YES = ord("1")


class _Tally(NamedTuple):
    """The current counts of a queue."""

    now: int
    ready: int
    scheduled: int
    in_flight: int
    dead: int | bytes  # or the name of the dead-letter queue, if under another tag
    oldest: int
    died: int  # dead-lettered by expired leases, but not moved yet
    came: int  # the same, in the source queue
    sources: bytes | None


def _tally(queue: RedisQueue) -> Verb[_Tally]:
    died = came = first = 0
    while True:
        reply = yield from queue.ask(queue.call("stats", first))
        now, to_tell, ready, scheduled, in_flight, dead, oldest, *more, sources = reply
        died, came = died + more[0], came + more[1]
        first += _PAGE_OF_LEASES
        if first >= to_tell:
            break
    counts = ready - died, scheduled, in_flight, dead, oldest, died, came
    return _Tally(now, *counts, sources)


def _messages_in(reply: list[Any]) -> list[tuple[bytes, bytes, bytes | None, bytes | None]]:
    """Return id, score, packed message and state of each peeked message."""
    taken, values, states, *_ = reply
    return list(zip(taken[::2], taken[1::2], values, states, strict=True))


def _exists(queue: RedisQueue) -> Verb[bool]:
    return bool((yield queue.command("EXISTS", queue.keys.key("queue"))))


class RedisVerbs(MessageVerbs[T], Generic[T]):
    """The verbs of one mailbox object."""

    wanted: Mapping[str, Any] = {}  # the options to open the queue with; see `RedisOptions`

    def beside(self, name: str) -> RedisVerbs[T]:
        """Return the verbs of another queue on the same servers, with the same type and limits."""
        return RedisVerbs(self.queue.beside(name), self.codec, self.max_body_bytes)

    def dead_letters(self) -> RedisVerbs[T] | None:
        dead = self.settings.dead if self.settings is not None else None
        return None if dead is None else self.beside(dead)

    def open(self) -> Verb[None]:
        """Open the queue. An existing queue takes only `dead_letters` and `journal`."""
        queue, wanted = self.queue, self.wanted
        if not wanted.get("create", True):
            if not (yield from _exists(queue)):
                raise no_queue(queue.name)
            self.settings = yield from queue.declare()
            return
        own = {
            "redelivery": default_redelivery(wanted),
            "capacity": wanted.get("capacity"),
            "fair": wanted.get("fair", False),
        }
        policy: DeadLetterPolicy | None = wanted.get("dead_letters")
        if policy is not None:
            yield from queue.declare(**own)
            yield from queue.set_dead_letters(policy.queue_of(queue.name), policy.max_deliveries)
        self.settings = yield from queue.declare(**own, journal=wanted.get("journal", False))

    def keep_for_answers(self) -> Verb[None]:
        """Create the reply queue if necessary, and renew its expiry."""
        yield from self.queue.declare(redelivery="tail")
        yield from self.expire()

    def delete_queue(self) -> Verb[None]:
        yield from delete(self.queue, all_keys=False)

    def _reply(self, to: str, in_reply_to: str, body: Any) -> Verb[str]:
        answers = self.beside(limits.queue_name(to, "reply_to"))
        return (yield from answers.answer(in_reply_to, body))

    def acknowledge(self, deliveries: Sequence[wire.Delivery]) -> Verb[list[bool]]:
        return self._settle("acknowledge", None, deliveries)

    def _nack(self, deliveries: Sequence[wire.Delivery], delay: int) -> Verb[list[bool]]:
        return self._settle("nack", wire.microseconds(delay), deliveries)

    def _extend(self, deliveries: Sequence[wire.Delivery], timeout: int) -> Verb[list[bool]]:
        return self._settle("extend", wire.microseconds(timeout), deliveries)

    def release(self, deliveries: Sequence[wire.Delivery]) -> Verb[list[bool]]:
        return self._settle("release", "0", deliveries)

    def _reject(self, deliveries: Sequence[wire.Delivery], reason: str) -> Verb[list[bool]]:
        return self._settle("reject", reason, deliveries)

    def _settle(
        self, script: str, argument: Any, deliveries: Sequence[wire.Delivery]
    ) -> Verb[list[bool]]:
        if not deliveries:
            return []
        pairs = [part for each in deliveries for part in (each.id, each.token)]
        call = self.queue.call(script, *(() if argument is None else (argument,)), *pairs)
        reply = yield from self.queue.ask(call)
        answers, on_the_way = (reply, 0) if argument is None else reply
        result = settled(self.name, [answer == _YES for answer in answers], call.doubtful)
        if on_the_way:
            yield from self.queue.carry()
        return result

    def _purge(self) -> Verb[int]:
        count: int = yield from self.queue.ask(self.queue.call("purge"))
        return count

    def stats(self) -> Verb[Stats]:
        """Return the current counts of the queue, without writing."""
        queue = self.queue
        found = yield from _tally(queue)
        ready, dead = found.ready + found.came, found.dead
        for source in queue.other_sources(found.sources):
            if not queue.sees(source):
                ready += (yield from _tally(source)).died
            ready += len((yield from queue.on_the_way_from(source)))
        if isinstance(dead, bytes):
            other = queue.beside(dead.decode())
            dead = yield other.command("HLEN", other.keys.key("bodies"))
            dead += len((yield from other.on_the_way_from(queue)))
        age = max(0, found.now - found.oldest) / 1_000_000 if found.oldest else None
        return Stats(ready, found.scheduled, found.in_flight, dead + found.died, age)

    def _peek(self, mailbox: Any, count: int, state: State) -> Verb[list[Any]]:
        reply = yield from self.queue.ask(self.queue.call("peek", state, count))
        found, sources = _messages_in(reply), reply[-1]
        if state == "ready":
            for source in self.queue.other_sources(sources):
                if len(found) < count:
                    if not self.queue.sees(source):
                        theirs = yield from source.ask(source.call("peek", "leaving", count))
                        found += _messages_in(theirs)
                    found += yield from self.queue.on_the_way_from(source)
        extra = int(state == "in_flight")
        return [
            self._seen(message_id, score, value, raw, extra, mailbox)
            for message_id, score, value, raw in found[:count]
            if value is not None
        ]

    def _settle_everything(self) -> Verb[None]:
        """Settle everything that is due, in queues under other tags as well."""
        yield from self.queue.carry()
        settings = yield from self.queue.declare()
        if settings.sources:
            yield from self.queue.collect(",".join(settings.sources).encode())

    def _delete(self, ids: list[str]) -> Verb[int]:
        wanted = [each.encode() for each in ids]
        count = 0
        for page in in_pages(wanted, _PAGE):
            count += yield from self.queue.ask(self.queue.call("delete", *page))
        return count

    def _redrive(
        self, mailbox: Any, ids: list[str] | None, where: Where | None, to: str | None
    ) -> Verb[int]:
        if to is not None and not (yield from _exists(self.queue.beside(to))):
            raise no_target(to)
        wanted = None if ids is None else [each.encode() for each in ids]
        yield from self._settle_everything()
        if wanted is None or where is not None:
            wanted = yield from self._choose(wanted, where, mailbox)
        if to is None:
            wanted = yield from self._with_source(wanted)
        count = 0
        for page in in_pages(wanted, _PAGE):
            call = self.queue.call("redrive", to or "", *page)
            moved, on_the_way = yield from self.queue.ask(call)
            count += moved
            if on_the_way:
                yield from self.queue.carry()
        return count

    def _with_source(self, ids: list[bytes]) -> Verb[list[bytes]]:
        """Return the messages whose source queue still exists: a redrive creates no queue."""
        exists: dict[str, bool] = {}
        kept = []
        for page in in_pages(ids, _PAGE):
            raw = yield self.queue.command("HMGET", self.queue.keys.key("states"), *page)
            for message_id, state in zip(page, map(wire.state_of, raw), strict=True):
                letter = wire.dead_letter(state) if state is not None else None
                if letter is None:
                    continue
                if letter.source not in exists:
                    there = yield from _exists(self.queue.beside(letter.source))
                    exists[letter.source] = there
                if exists[letter.source]:
                    kept.append(message_id)
        return kept

    def _choose(
        self, wanted: list[bytes] | None, where: Where | None, mailbox: Any
    ) -> Verb[list[bytes]]:
        """Return the ids of ready messages that are `wanted` and match `where`, page by page."""
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
                    if where is None or where(self._seen(*found, 0, mailbox)):
                        chosen[taken[2 * i]] = None
                first += ranks
                if ranks < _PAGE:
                    break
        return list(chosen)

    def message_id(self, delivery: wire.Delivery) -> str:
        return delivery.id.decode()

    def receipt_handle(self, delivery: wire.Delivery) -> str:
        return handle_of(delivery.id, delivery.token)

    def details(self, delivery: wire.Delivery) -> Details:
        return wire.details(delivery)
