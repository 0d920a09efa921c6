"""Queues on Redis that several brokers serve: see `mailbox.shared`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from pillarbox.codec import Codec, codec_for
from pillarbox.core import limits
from pillarbox.core.errors import MailboxFullError
from pillarbox.mailbox.protocol import State
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.connection import AsyncRedisConnection
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.redis.messages import Claim, Session
from pillarbox.mailbox.redis.options import CheckedOptions, servers_of_url
from pillarbox.mailbox.redis.queue import RedisQueue
from pillarbox.mailbox.redis.queues import describe, names_on, pause
from pillarbox.mailbox.redis.verbs import RedisVerbs
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.shared import (
    CrowdedQueueError,
    LiveBroker,
    QueueDescription,
    QueueSettings,
    SharedDelivery,
    SharedDraft,
    SharedId,
)

_US = 1_000
_COMMON = keys_of("pillarbox.brokers")  # keys of the state that all brokers share
_BYTES: Codec[bytes] = codec_for(bytes)


class RedisSharedQueue(RedisVerbs[bytes]):
    """The verbs of one queue."""

    alike = attrgetter("delay", "priority", "group")

    def __init__(self, queue: RedisQueue, in_flight_max: int, sessions: list[Session]) -> None:
        super().__init__(queue, _BYTES, limits.BODY_BYTES_MAX)
        self.in_flight_max = in_flight_max
        self._sessions = sessions

    def send_shared(self, row: Sequence[SharedDraft]) -> Verb[list[SharedId]]:
        first = row[0]
        values = [
            (wire.head_of(each.attributes) if each.attributes else wire.PLAIN) + each.body
            for each in row
        ]
        priority, delay = first.priority, first.delay
        if first.deduplication is None:
            sent = self.send_packed(values, priority, delay, first.group, None)
        else:
            twins = [(each.group or "", each.deduplication or "") for each in row]
            each_ = [(value, *twin) for value, twin in zip(values, twins, strict=True)]
            sent = self.send_each(each_, priority, delay)
        return [_shared_id(each) for each in (yield from sent)]

    def receive_shared(
        self, count: int, timeout: int, wait: int, attempt: str | None
    ) -> Verb[list[SharedDelivery]]:
        till = -wire.microseconds(wait)
        while True:
            try:
                lease = wire.microseconds(timeout)
                claim = yield from self._claim(count, lease, till, attempt)
            except MailboxFullError as error:
                raise CrowdedQueueError(str(error)) from error
            if claim is None:
                return []
            ids, scores = claim.taken[::2], claim.taken[1::2]
            found = zip(ids, scores, claim.values, claim.states, strict=True)
            deliveries = [_delivery(claim, *each) for each in found if each[2] is not None]
            if deliveries:
                return deliveries
            till = claim.till

    def give_back(self, deliveries: Sequence[tuple[str, bytes]]) -> Verb[None]:
        pairs = [part for id_, token in reversed(deliveries) for part in (id_, token)]
        yield from self.queue.run("release", "1", *pairs)

    def delete_held(self, deliveries: Sequence[tuple[str, bytes]]) -> Verb[list[bool]]:
        pairs = [part for delivery in deliveries for part in delivery]
        answer = yield from self.queue.run("acknowledge", *pairs)
        return [each == ord("1") for each in answer]

    def delete_any(self, ids: Sequence[str]) -> Verb[int]:
        return (yield from self._delete(list(ids)))

    def exist(self, ids: Sequence[str]) -> Verb[list[bool]]:
        key = self.queue.keys.key("bodies")
        answers = []
        for each in ids:
            answers.append(bool((yield self.queue.command("HEXISTS", key, each))))
        return answers

    def change_shared(
        self, delivery: tuple[str, bytes], timeout: int, held_max: int, *, holder_only: bool
    ) -> Verb[bool | None]:
        answer, on_the_way = yield from self.queue.run(
            "change",
            wire.microseconds(timeout),
            "1" if holder_only else "",
            wire.microseconds(held_max),
            *delivery,
        )
        if on_the_way:
            yield from self._move_outbox()
        return None if answer == 2 else answer == 1

    def times(self, state: State, count: int) -> Verb[dict[str, int]]:
        """Return when scheduled messages are due or leases end, by id."""
        key = self.queue.keys.key("later" if state == "scheduled" else "leases")
        ids = yield self.queue.command("ZRANGE", key, 0, count - 1)
        times = (yield self.queue.command("ZMSCORE", key, *ids)) if ids else ()
        return {
            each.decode(): int(float(at)) * _US
            for each, at in zip(ids, times, strict=True)
            if at is not None
        }

    def waiting(self, count: int) -> Verb[list[tuple[str, str | None]]]:
        yield from self._settle_everything()
        found: list[tuple[str, str | None]] = []
        for part in ("line", "grouped"):
            reply = yield from self.queue.run("page", part, 0, count - len(found), "1")
            _, taken, _, states = reply
            for message_id, raw in zip(taken[::2], states, strict=True):
                found.append((message_id.decode(), wire.source_in(raw)))
            if len(found) >= count:
                break
        return found

    def redrive_shared(self, ids: Sequence[str], to: str | None) -> Verb[int]:
        return (yield from self._redrive(None, list(ids), None, to))

    def sweep(self, count: int) -> Verb[int]:
        return int((yield from self.queue.run("sweep", count)))

    def purge_shared(self) -> Verb[None]:
        yield from self._purge()


class RedisSharedStore:
    """A shared store on one server, a cluster, or with Sentinel."""

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        named = _with_name(url)
        _, _, found = servers_of_url(named, asynchronous=True)
        checked = CheckedOptions({**found, "url": named, **(options or {})}, asynchronous=True)
        self._options, self._servers = checked, checked.servers
        self._connection = AsyncRedisConnection(checked.servers, checked.retry_seconds)
        self._sessions: dict[str, list[Session]] = {}  # sender sessions by queue
        self.do = self._connection.do
        self.wake = self._connection.wake
        self.close = self._connection.close

    def _queue(self, name: str, version: str = "") -> RedisQueue:
        options = self._options
        queue = RedisQueue(name, options.scripts, options.replicas, options.replica_seconds)
        queue.expect(version)
        return queue

    def queue(self, name: str, version: str, in_flight_max: int) -> RedisSharedQueue:
        sessions = self._sessions.setdefault(name, [])
        return RedisSharedQueue(self._queue(name, version), in_flight_max, sessions)

    def open(self) -> Verb[bytes]:
        queue, key = self._queue(_COMMON.name), _COMMON.key("secret")
        yield queue.command("SET", key, secrets.token_hex(32), "NX")
        secret: bytes = yield queue.command("GET", key)
        return secret

    def describe(self, name: str) -> Verb[QueueDescription | None]:
        return (yield from describe(self._queue(name)))

    def names(self) -> Verb[Iterable[str]]:
        found: set[str] = yield from names_on(self._servers)
        return found

    def create(self, name: str, notes: dict[str, Any], settings: QueueSettings) -> Verb[bool]:
        queue = self._queue(name)
        fields = {
            **_fields(notes, settings),
            "redelivery": "original",
            "on_receive": "1",
            "fair": "1" if settings.fair else "",
            # Invalidates deduplication ids of a deleted queue of this name.
            "purges": str(secrets.randbits(52)),
        }
        yield from self._note_source(queue, settings.dead)
        made = yield from self._write(queue, fields)
        if made:
            yield from self._adopt(queue)
        return made

    def configure(
        self, name: str, version: str, notes: dict[str, Any], settings: QueueSettings
    ) -> Verb[None]:
        queue = self._queue(name, version)
        before = yield queue.command("HGET", queue.keys.key("queue"), "dead")
        yield from self._note_source(queue, settings.dead)
        if not version:  # not created by a broker: adopt it
            key = queue.keys.key("queue")
            yield queue.command("HSETNX", key, "version", secrets.token_hex(8))
            queue.expect((yield queue.command("HGET", key, "version")).decode())
        yield from self._write(queue, _fields(notes, settings))
        if before is not None and before.decode() != settings.dead:
            yield from self._queue(name).carry()
            yield from queue.disown(before.decode())

    def _note_source(self, queue: RedisQueue, dead: str | None) -> Verb[None]:
        """Register a source queue before its policy is set; a crash leaves only an extra name."""
        if dead is not None:
            yield from queue.beside(dead).declare(source=queue.name, chain=True)

    def _write(self, queue: RedisQueue, fields: dict[str, Any]) -> Verb[bool]:
        pairs = [part for pair in fields.items() for part in pair]
        return bool((yield from queue.run("configure", *pairs)))

    def _adopt(self, queue: RedisQueue) -> Verb[None]:
        """Register queues whose policy names this queue, which was deleted before."""
        key = queue.keys.key("orphans")
        for source in (yield queue.command("SMEMBERS", key)):
            other = queue.beside(source.decode())
            described = yield from self.describe(other.name)
            wanted = described and described.notes.get("dead")
            if described is None or described.dead or not wanted or wanted[0] != queue.name:
                continue
            if not (yield from self._leads_to(queue.name, other.name)):
                settings = _settings_of(described.notes, queue.name, wanted[1])
                yield from self.configure(other.name, described.version, described.notes, settings)
        yield queue.command("DEL", key)

    def _leads_to(self, name: str, end: str) -> Verb[bool]:
        """Return whether dead letters of a queue reach another, directly or through others."""
        passed: set[str] = set()
        while name not in passed:
            passed.add(name)
            described = yield from self.describe(name)
            if described is None or described.dead is None:
                return False
            name = described.dead
            if name == end:
                return True
        return False

    def drop(self, name: str, recent_seconds: int) -> Verb[None]:
        queue = self._queue(name)
        described = yield from self.describe(name)
        if described is None:
            return
        for source in described.sources:  # its dead letters stay there
            theirs = yield from self.describe(source)
            if theirs is not None and theirs.dead == name:
                yield queue.command("SADD", queue.keys.key("orphans"), source)
                settings = _settings_of(theirs.notes, None, 0)
                yield from self.configure(source, theirs.version, theirs.notes, settings)
        yield from queue.carry()
        if described.dead is not None:
            yield from queue.disown(described.dead)
        yield from queue.run("drop")
        self._sessions.pop(name, None)
        if recent_seconds:
            key = queue.keys.key("dropped")
            yield queue.command("SET", key, "1", "EX", recent_seconds)

    def dropped_recently(self, name: str) -> Verb[bool]:
        queue = self._queue(name)
        return bool((yield queue.command("EXISTS", queue.keys.key("dropped"))))

    def pause(self, name: str, *, paused: bool) -> Verb[None]:
        yield from pause(self._queue(name), paused=paused)

    def beat(self, broker_id: str, seconds: int, said: str) -> Verb[list[LiveBroker]]:
        queue = self._queue(_COMMON.name)
        call = queue.call("beat", broker_id, seconds, said, keys=(_COMMON.key("live"),))
        found = iter((yield call))
        return [
            LiveBroker(name.decode(), int(seen) * _US, text.decode())
            for name, seen, text in zip(found, found, found, strict=True)
        ]

    def keep_if(self, name: str, before: str | None, after: str) -> Verb[bool]:
        call = self._queue(_COMMON.name).call(
            "keep_if", before or "", after, keys=(_COMMON.key(name),)
        )
        return bool((yield call))

    def kept(self, name: str) -> Verb[str | None]:
        found = yield self._queue(_COMMON.name).command("GET", _COMMON.key(name))
        return None if found is None else found.decode()

    def begin_purge(self, name: str, seconds: int) -> Verb[bool]:
        queue = self._queue(name)
        if not seconds:
            return True
        key, ours = queue.keys.key("purged"), secrets.token_hex(8).encode()
        known = yield queue.command("SET", key, ours, "NX", "GET", "EX", seconds)
        return known in (None, ours)  # ours: the response was lost


def _fields(notes: dict[str, Any], settings: QueueSettings) -> dict[str, Any]:
    """Return the fields of a queue's hash; see queue.lua."""
    return {
        "version": secrets.token_hex(8),
        "sqs": msgspec.msgpack.encode(notes),
        "retention": "" if settings.retention is None else str(settings.retention // _US),
        "dead": settings.dead or "",
        "max": str(settings.max_deliveries or ""),
    }


def _settings_of(notes: dict[str, Any], dead: str | None, most: int) -> QueueSettings:
    return QueueSettings(notes.get("retention"), dead, most)


def _shared_id(message_id: str) -> SharedId:
    return SharedId(message_id, int(message_id[15:26], 16))


def _delivery(
    claim: Claim, message_id: bytes, score: bytes, value: bytes, raw: bytes | None
) -> SharedDelivery:
    head, body = wire.split(value)
    state = wire.state_of(raw)
    number = 1 if state is None else state.deliveries + 1
    details = wire.details(wire.Delivery(message_id, claim.token, number, head, score, raw))
    letter = details.dead_letter
    leased_at = int(claim.now) * _US
    return SharedDelivery(
        _shared_id(message_id.decode()),
        claim.token,
        number,
        int(message_id[:14], 16) * _US,
        leased_at,
        (wire.first_leased_at(state) if state is not None else None) or leased_at,
        details.priority,
        wire.attributes_in(head),
        details.group,
        letter.source if letter is not None else None,
        body,
    )


def _with_name(url: str) -> str:
    """Add a queue name to a store's URL, such as `redis://host/2` or `redis+sentinel://h/svc`."""
    base, mark, query = url.partition("?")
    return f"{base.rstrip('/')}/-{mark}{query}"
