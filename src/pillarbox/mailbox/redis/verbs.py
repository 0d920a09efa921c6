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
        reply = yield from queue.run("stats", first)
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
        own: dict[str, Any] = {}
        if wanted.get("create", True):
            own["redelivery"] = default_redelivery(wanted)
            own["capacity"] = wanted.get("capacity")
            own["fair"] = wanted.get("fair", False)
        elif not (yield from queue.exists()):
            raise no_queue(queue.name)
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
            yield from self._move_outbox()
        return result

    def _purge(self) -> Verb[int]:
        count: int = yield from self.queue.run("purge")
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
        reply = yield from self.queue.run("peek", state, count)
        found, sources = _messages_in(reply), reply[-1]
        if state == "ready":
            for source in self.queue.other_sources(sources):
                if len(found) < count:
                    if not self.queue.sees(source):
                        theirs = yield from source.run("peek", "leaving", count)
                        found += _messages_in(theirs)
                    found += yield from self.queue.on_the_way_from(source)
        extra = int(state == "in_flight")
        present = (each for each in found[:count] if each[2] is not None)
        return [self._seen(*each, extra, mailbox) for each in present]

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
            count += yield from self.queue.run("delete", *page)
        return count

    def _redrive(
        self, mailbox: Any, ids: list[str] | None, where: Where | None, to: str | None
    ) -> Verb[int]:
        if to is not None and not (yield from self.queue.beside(to).exists()):
            raise no_target(to)
        wanted = None if ids is None else [each.encode() for each in ids]
        yield from self._settle_everything()
        if wanted is None or where is not None:
            wanted = yield from self._choose(wanted, where, mailbox)
        if to is None:
            wanted = yield from self._with_source(wanted)
        count = 0
        for page in in_pages(wanted, _PAGE):
            moved, on_the_way = yield from self.queue.run("redrive", to or "", *page)
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
            for message_id, source in zip(page, map(wire.source_in, raw), strict=True):
                if source is None:
                    continue
                if source not in exists:
                    exists[source] = yield from self.queue.beside(source).exists()
                if exists[source]:
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
                ranks, *reply = yield from self.queue.run("page", part, first, _PAGE)
                for found in _messages_in(reply):
                    message_id, _, value, _ = found
                    if value is None or (among is not None and message_id not in among):
                        continue
                    if where is None or where(self._seen(*found, 0, mailbox)):
                        chosen[message_id] = None
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
