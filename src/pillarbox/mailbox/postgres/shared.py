"""Queues in PostgreSQL that several brokers serve: see `mailbox.shared`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from pillarbox.codec import Codec, codec_for
from pillarbox.core import limits
from pillarbox.core.errors import MailboxFullError
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.call import Call, Initialise
from pillarbox.mailbox.postgres.connection import AsyncPostgresConnection
from pillarbox.mailbox.postgres.errors import QueueDeletedError, SchemaMissingError
from pillarbox.mailbox.postgres.messages import FINISH, Found
from pillarbox.mailbox.postgres.options import CheckedOptions, parse_url
from pillarbox.mailbox.postgres.queues import DESCRIBE, PAUSE, description
from pillarbox.mailbox.postgres.schema import VERSION
from pillarbox.mailbox.postgres.verbs import TIMED, PostgresVerbs
from pillarbox.mailbox.protocol import State
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.shared import (
    CrowdedQueueError,
    LiveBroker,
    QueueDescription,
    QueueSettings,
    SharedDelivery,
    SharedDraft,
    SharedId,
    StaleQueueError,
)
from pillarbox.mailbox.verbs import Outgoing

_US = 1_000
_LEASED_AT = wire.DIED_AT + 1  # appended to the columns of the database
_BYTES: Codec[bytes] = codec_for(bytes)
_QUEUE = "%s::integer"
_QUEUE_AT_VERSION = "pillarbox.at_version(%s::integer, %s)"
_CHANGE = (
    "SELECT pillarbox.change_visibility(%s::integer, %s::bigint, %s::bytea, %s::bigint, "
    "%s::bigint, %s::boolean)"
)
_SEND_EACH = (
    "SELECT ids_, until_ FROM pillarbox.send_each(%s::integer, %s::bytea[], %s::bytea[], "
    "%s::integer, %s::bigint, %s::text[], %s::text[], %s::bigint, %s::bigint)"
)
# The head of a group may have a late rank. It precedes its group all the same.
_WAITING = """
WITH page AS (SELECT * FROM pillarbox.page(%s::integer, -1, 0, %s::integer))
SELECT id, source FROM (
  SELECT id, source, pillarbox.rank(priority, place) AS at FROM page
  UNION
  SELECT head.id, head.source, pillarbox.rank(head.priority, head.place)
  FROM page JOIN pillarbox.messages head USING (queue, group_name) WHERE head.state = 0
) AS ready ORDER BY at LIMIT %s::integer
"""
_TIMES = "SELECT id, due FROM pillarbox.peek_timed(%s::integer, %s::smallint[], %s::integer)"
_CONFIGURE = (
    "SELECT pillarbox.configure_queue(%s, %s, %s, %s::bytea, %s::bigint, %s, %s::integer, "
    "%s::boolean)"
)
_FACT = "SELECT value FROM pillarbox.broker_facts WHERE name = %s AND expires_at IS NULL"
_NEW_FACT = (
    "INSERT INTO pillarbox.broker_facts VALUES (%s, %s) ON CONFLICT (name) DO NOTHING RETURNING 1"
)
_NOTE = "SELECT pillarbox.note_fact(%s, %s, %s::integer)"
_NOTED = "SELECT 1 FROM pillarbox.broker_facts WHERE name = %s AND expires_at > pillarbox.clock()"


class _Received:
    """Stands for a message, because brokers do not decode bodies."""

    @staticmethod
    def _kind(body: bytes, number: int, delivery: wire.Delivery, _: Any) -> Any:
        return body, number, delivery


class PostgresSharedQueue(PostgresVerbs[bytes]):
    """The verbs of one queue."""

    alike = attrgetter("delay", "priority", "group", "attributes")

    def __init__(self, name: str, queue_id: int, version: str, in_flight_max: int) -> None:
        super().__init__(name, "", _BYTES, limits.BODY_BYTES_MAX)
        self.queue_id, self._version = queue_id, version
        self.in_flight_max = in_flight_max

    def call(self, statement: str, *parameters: Any) -> Call:
        statement = statement.replace(_QUEUE, _QUEUE_AT_VERSION, 1)
        return super().call(statement, self._version, *parameters)

    def ask(self, call: Call) -> Verb[Any]:
        try:
            return (yield call)
        except QueueDeletedError as error:
            raise StaleQueueError(str(error)) from None

    def _claim(self, *arguments: Any) -> Verb[Found]:
        """Claim messages, with the time of the claim appended to each row."""
        found = yield from super()._claim(*arguments)
        found.rows = [(*row, found.now) for row in found.rows]
        return found

    def send_shared(self, row: Sequence[SharedDraft]) -> Verb[list[SharedId]]:
        first = row[0]
        if first.deduplication is not None:
            return (yield from self._send_each(row))
        sent = Outgoing(
            [each.body for each in row],
            first.delay,
            first.priority,
            first.attributes,
            first.group,
        )
        ids = yield from self._send(sent)
        return [SharedId(each, int(each, 16)) for each in ids]

    def _send_each(self, row: Sequence[SharedDraft]) -> Verb[list[SharedId]]:
        """Send messages, each with its own group and deduplication id."""
        first = row[0]
        call = self.call(
            _SEND_EACH,
            [each.body for each in row],
            [wire.packed(each.attributes) if each.attributes else None for each in row],
            str(first.priority),
            wire.microseconds(first.delay),
            [each.group for each in row],
            [each.deduplication for each in row],
            str(limits.DEDUPLICATION_SECONDS * 1_000_000),
            str(self.low_water.since),
        )
        ids, self.low_water.since = (yield from self.ask(call))[0]
        return [SharedId(wire.public_id(number), number) for number in ids]

    def receive_shared(
        self, count: int, timeout: int, wait: int, attempt: str | None
    ) -> Verb[list[SharedDelivery]]:
        try:
            found = yield from self._receive(_Received, count, timeout, wait, attempt)
        except MailboxFullError as error:
            raise CrowdedQueueError(str(error)) from error
        return [_delivery(*each) for each in found]

    def give_back(self, deliveries: Sequence[tuple[str, bytes]]) -> Verb[None]:
        ids = wire.array([int(id_, 16) for id_, _ in reversed(deliveries)])
        tokens = wire.ByteArray([token for _, token in reversed(deliveries)])
        yield from self.ask(self.call(FINISH, "front", "0", None, ids, tokens, "0"))

    def delete_held(self, deliveries: Sequence[tuple[str, bytes]]) -> Verb[list[bool]]:
        held = [wire.Delivery(int(id_, 16), token, ()) for id_, token in deliveries]
        return (yield from self.acknowledge(held))

    def delete_any(self, ids: Sequence[str]) -> Verb[int]:
        return (yield from self._delete(list(ids)))

    def exist(self, ids: Sequence[str]) -> Verb[list[bool]]:
        found = "SELECT id FROM pillarbox.messages WHERE queue = %s::integer"
        statement = f"{found} AND id = ANY (%s::bigint[])"
        numbers = [int(each, 16) for each in ids]
        rows = yield from self.ask(self.call(statement, wire.array(numbers)))
        there = {row[0] for row in rows}
        return [number in there for number in numbers]

    def change_shared(
        self, delivery: tuple[str, bytes], timeout: int, held_max: int, *, holder_only: bool
    ) -> Verb[bool | None]:
        message_id, token = delivery
        times = wire.microseconds(timeout), wire.microseconds(held_max)
        call = self.call(_CHANGE, str(int(message_id, 16)), token, *times, holder_only)
        answer = (yield from self.ask(call))[0][0]
        return None if answer == 2 else answer == 1

    def times(self, state: State, count: int) -> Verb[dict[str, int]]:
        """Return when scheduled messages are due or leases end, by id."""
        rows = yield from self.ask(self.call(_TIMES, TIMED[state], str(count)))
        return {wire.public_id(number): due * _US for number, due in rows}

    def waiting(self, count: int) -> Verb[list[tuple[str, str | None]]]:
        yield from self.ask(self.call("SELECT pillarbox.tick(%s::integer)"))
        rows = yield from self.ask(self.call(_WAITING, str(count), str(count)))
        return [(wire.public_id(number), source) for number, source in rows]

    def redrive_shared(self, ids: Sequence[str], to: str | None) -> Verb[int]:
        return (yield from self._redrive(None, list(ids), None, to))

    def sweep(self, count: int) -> Verb[int]:
        statement = "SELECT pillarbox.sweep(%s::integer, %s::integer)"
        rows = yield from self.ask(self.call(statement, str(count)))
        return int(rows[0][0])

    def purge_shared(self) -> Verb[None]:
        yield from self._purge()


class PostgresSharedStore:
    """A shared store in one database."""

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        checked = CheckedOptions({**parse_url(url)[2], "url": url, **(options or {})})
        self._connection = AsyncPostgresConnection(checked.database)
        self._ids: dict[str, int] = {}
        self.do = self._connection.do
        self.wake = self._connection.wake
        self.close = self._connection.close

    def queue(self, name: str, version: str, in_flight_max: int) -> PostgresSharedQueue:
        return PostgresSharedQueue(name, self._ids[name], version, in_flight_max)

    def open(self) -> Verb[bytes]:
        try:
            ((version,),) = yield Call("-", "SELECT version FROM pillarbox.schema_version")
        except SchemaMissingError:
            version = 0
        if version < VERSION:
            yield Initialise("-")
        yield Call("-", _NEW_FACT, ("secret", secrets.token_hex(32)))
        rows = yield Call("-", _FACT, ("secret",))
        secret: bytes = rows[0][0].encode()
        return secret

    def describe(self, name: str) -> Verb[QueueDescription | None]:
        rows = yield Call(name, DESCRIBE, (name,))
        if not rows:
            return None
        self._ids[name] = rows[0][0]
        return description(rows[0])

    def names(self) -> Verb[Iterable[str]]:
        rows = yield Call("-", "SELECT name FROM pillarbox.queues")
        return [row[0] for row in rows]

    def create(self, name: str, notes: dict[str, Any], settings: QueueSettings) -> Verb[bool]:
        return (yield from self._write(name, None, notes, settings))

    def configure(
        self, name: str, version: str, notes: dict[str, Any], settings: QueueSettings
    ) -> Verb[None]:
        yield from self._write(name, version, notes, settings)

    def _write(
        self, name: str, known: str | None, notes: dict[str, Any], settings: QueueSettings
    ) -> Verb[bool]:
        retention = None if settings.retention is None else str(settings.retention // _US)
        # The dead-letter queue in the notes may be deleted, and created again later.
        dead, most = notes.get("dead") or (settings.dead, settings.max_deliveries)
        values = (
            *(name, known, secrets.token_hex(8), msgspec.msgpack.encode(notes), retention),
            *(dead, str(most), settings.fair),
        )
        try:
            rows = yield Call(name, _CONFIGURE, values)
        except QueueDeletedError as error:
            raise StaleQueueError(str(error)) from None
        made: bool = rows[0][0]
        return made

    def drop(self, name: str, recent_seconds: int) -> Verb[None]:
        yield Call(name, "SELECT pillarbox.drop_shared(%s)", (name,))
        if recent_seconds:
            yield Call(name, _NOTE, (f"dropped {name}", "", str(recent_seconds)))

    def dropped_recently(self, name: str) -> Verb[bool]:
        return bool((yield Call(name, _NOTED, (f"dropped {name}",))))

    def pause(self, name: str, *, paused: bool) -> Verb[None]:
        yield Call(name, PAUSE, (name, paused))

    def beat(self, broker_id: str, seconds: int, said: str) -> Verb[list[LiveBroker]]:
        statement = "SELECT * FROM pillarbox.beat(%s, %s::integer, %s)"
        rows = yield Call("-", statement, (broker_id, str(seconds), said))
        return [LiveBroker(name, seen * _US, text) for name, seen, text in rows]

    def keep_if(self, name: str, before: str | None, after: str) -> Verb[bool]:
        rows = yield Call("-", "SELECT pillarbox.keep_if(%s, %s, %s)", (name, before, after))
        kept: bool = rows[0][0]
        return kept

    def kept(self, name: str) -> Verb[str | None]:
        rows = yield Call("-", _FACT, (name,))
        return rows[0][0] if rows else None

    def begin_purge(self, name: str, seconds: int) -> Verb[bool]:
        if not seconds:
            return True
        rows = yield Call(name, _NOTE, (f"purged {name}", secrets.token_hex(8), str(seconds)))
        first: bool = rows[0][0]
        return first


def _delivery(body: bytes, number: int, delivery: wire.Delivery) -> SharedDelivery:
    row = delivery.row
    attempts = row[wire.ATTEMPTS]
    leased_at = row[_LEASED_AT] * _US
    return SharedDelivery(
        SharedId(wire.public_id(delivery.id), delivery.id),
        delivery.token,
        number,
        row[wire.ENQUEUED_AT] * _US,
        leased_at,
        attempts[0][0] * _US if attempts else leased_at,
        row[wire.PRIORITY],
        wire.attributes_in(row[wire.HEAD]),
        row[wire.GROUP],
        row[wire.SOURCE],
        body,
    )
