"""One queue on the server: calling its scripts, opening it, and moving messages to other queues.

A message moves to a queue under the same hash tag in one script. To any other queue it moves
through the outbox: from the line to the outbox, into the other queue, out of the outbox. Each step
is atomic and idempotent, so nothing is lost or duplicated if a client dies in between.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any, NamedTuple

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.errors import RefusedError
from pillarbox.mailbox.redis.keys import DEAD, keys_of, partner_of
from pillarbox.mailbox.redis.resp import Keys
from pillarbox.mailbox.redis.scripts import Scripts
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.shared import StaleQueueError

_OUTBOX_PAGE = 100
_LETTER = Layout(">HHI")


class Settings(NamedTuple):
    """The settings of a queue, from when it was first opened."""

    redelivery: str
    capacity: int | None
    journal: bool
    max_deliveries: int
    dead: str | None
    sources: tuple[str, ...]


class RedisQueue:
    """One queue and the calls of its scripts."""

    def __init__(self, name: str, scripts: Scripts, replicas: int, replica_seconds: float) -> None:
        self.name = name
        self.keys = keys_of(name)
        self._scripts = scripts
        self._replicas = replicas
        self._replica_seconds = replica_seconds
        self._version = b""
        self._use_keys(paired=name.endswith(DEAD) and name != DEAD)

    def _use_keys(self, paired: bool) -> None:
        """Set the keys that scripts get: its own, and if `paired` those of its partner queue."""
        self.paired = paired
        other = keys_of(partner_of(self.name))
        self._packed_keys = Keys(self.keys.keys + other.keys if paired else self.keys.keys)
        own = self.name.encode() + self._version
        self._names = own, other.name.encode() if paired else b""

    def expect(self, version: str) -> None:
        """Make scripts fail (STALE) if the queue has another version."""
        self._version = b"\0" + version.encode() if version else b""
        self._use_keys(self.paired)

    def beside(self, name: str) -> RedisQueue:
        """Return another queue on the same servers."""
        return RedisQueue(name, self._scripts, self._replicas, self._replica_seconds)

    def call(
        self, script: str, *arguments: Any, keys: tuple[bytes, ...] = (), confirm: bool = False
    ) -> Call:
        """Return the call of a script; with `confirm`, replicas must confirm it if configured."""
        words = [*keys, *self._names, *arguments]
        call = Call(
            self.name, self.keys.slot, self._scripts[script], words, self._packed_keys, len(keys)
        )
        if confirm:
            call.replicas, call.replica_seconds = self._replicas, self._replica_seconds
        return call

    def run(self, script: str, *arguments: Any, confirm: bool = False) -> Verb[Any]:
        """Run a script and return the response."""
        return self.ask(self.call(script, *arguments, confirm=confirm))

    def ask(self, call: Call) -> Verb[Any]:
        """Run a script, with its partner's keys if it needs them, and return the response."""
        while True:
            names = slice(call.own_keys, call.own_keys + len(self._names))
            try:
                return (yield call)
            except RefusedError as error:
                if error.code == "STALE":
                    raise StaleQueueError(str(error)) from None
                if error.code != "PAIR" or all(call.arguments[names]):
                    raise
            self._use_keys(paired=True)
            call.keys = self._packed_keys
            call.arguments[names] = self._names

    def command(self, *arguments: Any) -> Call:
        return Call(self.name, self.keys.slot, None, list(arguments))

    def exists(self) -> Verb[bool]:
        return bool((yield self.command("EXISTS", self.keys.key("queue"))))

    def declare(
        self,
        *,
        redelivery: str = "",
        capacity: int | None = None,
        journal: bool = False,
        max_deliveries: int = 0,
        dead: str = "",
        source: str = "",
        fair: bool = False,
        chain: bool = False,
    ) -> Verb[Settings]:
        """Store new settings, if any, and return all settings."""
        reply = yield from self.run(
            "declare",
            redelivery,
            capacity or "",
            "1" if journal else "",
            max_deliveries or "",
            dead,
            source,
            "1" if fair else "",
            "1" if chain else "",
        )
        texts = [None if value is None else value.decode() for value in reply]
        redelivery_, capacity_, journal_, max_, dead_, sources = texts
        if dead_ == partner_of(self.name) and not self.paired:
            self._use_keys(paired=True)
        return Settings(
            redelivery_ or "tail",
            int(capacity_) if capacity_ else None,
            journal_ == "1",
            int(max_ or 0),
            dead_,
            tuple(sources.split(",")) if sources else (),
        )

    def set_dead_letters(self, dead: str, max_deliveries: int) -> Verb[None]:
        """Set the dead-letter queue, which must not have one of its own."""
        settings = yield from self.declare()
        if dead == self.name or settings.sources:
            raise InvalidParameterError(
                "dead_letters", dead, "another queue, for a queue that is not a dead-letter queue"
            )
        try:
            yield from self.beside(dead).declare(redelivery="tail", source=self.name)
        except RefusedError as error:
            if error.code != "MORTAL":
                raise
            raise InvalidParameterError(
                "dead_letters", dead, "a queue with no dead-letter queue of its own"
            ) from error
        yield from self.declare(max_deliveries=max_deliveries, dead=dead)

    def disown(self, dead: str) -> Verb[None]:
        """Remove this queue from the sources of its former dead-letter queue."""
        yield from self.beside(dead).run("disown", self.name)

    def carry(self) -> Verb[tuple[int, int]]:
        """Move messages from the outbox to their queues; return how many, and when to retry."""
        count = 0
        while True:
            now, following, outbox = yield from self.run("tick", _OUTBOX_PAGE)
            by_target: dict[str, list[tuple[bytes, bytes]]] = {}
            for ticket, packed in zip(outbox[::2], outbox[1::2], strict=True):
                target = _split_letter(packed)[0].decode()
                by_target.setdefault(target, []).append((ticket, packed))
            for target, letters in by_target.items():
                yield from self._deliver(self.beside(target), letters)
            if not outbox and not 0 < following <= now:
                return count, int(following)
            count += len(outbox) // 2

    def _deliver(self, target: RedisQueue, letters: list[tuple[bytes, bytes]]) -> Verb[None]:
        letters.sort(key=lambda letter: int(letter[0].rpartition(b"/")[2]))
        arguments: list[Any] = []
        for ticket, packed in letters:
            _, *message = _split_letter(packed)
            arguments += [ticket, *message]
        yield from target.run("accept", *arguments, confirm=True)
        yield self.command("HDEL", self.keys.key("outbox"), *(ticket for ticket, _ in letters))

    def other_sources(self, sources: bytes | None) -> list[RedisQueue]:
        """Return the source queues under other hash tags."""
        names = sources.decode().split(",") if sources else []
        found = map(self.beside, names)
        # A partner's scripts move dead letters here directly, unless it is paired with another
        # queue.
        return [each for each in found if not self.sees(each) or each.name.endswith(DEAD)]

    def sees(self, source: RedisQueue) -> bool:
        """Return whether scripts of this queue also have the keys of that one."""
        return self.paired and source.name == partner_of(self.name)

    def on_the_way_from(self, source: RedisQueue) -> Verb[list[tuple[bytes, bytes, bytes, bytes]]]:
        """Return id, score (none), packed message and state of messages still in the outbox."""
        outbox = yield source.command("HGETALL", source.keys.key("outbox"))
        if not outbox:
            return []
        if not isinstance(outbox, dict):  # before RESP3
            outbox = dict(zip(outbox[::2], outbox[1::2], strict=True))
        arrived = yield self.command("ZMSCORE", self.keys.key("arrived"), *outbox)
        letters = zip(map(_split_letter, outbox.values()), arrived, strict=True)
        ours = self.name.encode()
        return [(i, b"0", v, s) for (to, i, v, s), at in letters if at is None and to == ours]

    def collect(self, sources: bytes | None) -> Verb[tuple[int, int]]:
        """Fetch dead letters of source queues under other tags; return how many, and when next."""
        arrived, following = 0, 0
        for source in self.other_sources(sources):
            count, at = yield from source.carry()
            arrived += count
            following = min(filter(None, (following, at)), default=0)
        return arrived, following


def _split_letter(packed: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return queue name, id, packed message and state: see `move` in fate.lua."""
    name, message_id, value = _LETTER.unpack_from(packed)
    first = _LETTER.size
    second, third = first + name, first + name + message_id
    last = third + value
    return packed[first:second], packed[second:third], packed[third:last], packed[last:]
