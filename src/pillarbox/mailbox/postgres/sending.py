"""One queue: opening it, calling its functions, and sending."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Generic, NamedTuple, Self, TypeVar

from pillarbox.codec import Codec
from pillarbox.core import limits
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.answers import IDLE_SECONDS_MAX, answer, dropped, is_reply_queue
from pillarbox.mailbox.options import default_redelivery
from pillarbox.mailbox.postgres import wire
from pillarbox.mailbox.postgres.call import Call, Initialise
from pillarbox.mailbox.postgres.errors import QueueDeletedError, SchemaMissingError
from pillarbox.mailbox.postgres.low_water import LowWater
from pillarbox.mailbox.postgres.schema import VERSION
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.store import no_queue
from pillarbox.mailbox.verbs import Outgoing, Verbs

T = TypeVar("T")

_DECLARE = (
    "SELECT s.version, q.* FROM pillarbox.schema_version s LEFT JOIN pillarbox.declare_queue("
    "%s, %s::boolean, %s, %s::bigint, %s::boolean, %s::integer, %s, %s::boolean) q ON true"
)
_SEND = (
    "SELECT ids_, until_ FROM pillarbox.send(%s::integer, %b::bytea[], %s::bytea, %s::integer, "
    "%s::bigint, %s, %s, %s::bigint, %s::bigint, %s::boolean)"
)
_DEDUPLICATION_US = str(limits.DEDUPLICATION_SECONDS * 1_000_000)


class Settings(NamedTuple):
    """What a queue was opened with, by whoever did so first."""

    queue_id: int
    redelivery: str
    capacity: int | None
    history: bool
    max_deliveries: int
    dead: str | None


class Sender(Verbs[T, wire.Delivery], Generic[T]):
    """Opens a queue, and puts messages in."""

    def __init__(self, name: str, database: str, codec: Codec[T], max_body_bytes: int) -> None:
        super().__init__(name, codec, max_body_bytes)
        self.database = database  # what libpq is told of it
        self.wanted: Mapping[str, Any] = {}  # how the queue is to be opened
        self.settings: Settings | None = None
        self.queue_id: int | None = None  # once it is open
        self.low_water = LowWater()
        self.connection: Any = None  # the caller's, whose transaction these verbs take part in

    def within(self, connection: Any) -> Self:
        """These verbs as a part of the transaction of a psycopg connection."""
        verbs = copy(self)
        verbs.connection = connection
        return verbs

    @property
    def identity(self) -> object:
        return self.database, self.name

    def open(self) -> Verb[None]:
        try:
            yield from self._declare()
        except SchemaMissingError:
            yield Initialise(self.name)
            yield from self._declare()

    def _declare(self) -> Verb[Settings]:
        """These settings are for a new queue, the dead letters and the history for any."""
        wanted = self.wanted
        policy: DeadLetterPolicy | None = wanted.get("dead_letters")
        capacity = wanted.get("capacity")
        create = wanted.get("create", True)
        ((version, *found),) = yield Call(
            self.name,
            _DECLARE,
            (
                self.name,
                create,
                default_redelivery(wanted),
                None if capacity is None else str(capacity),
                wanted.get("history", False),
                "0" if policy is None else str(policy.max_deliveries),
                None if policy is None else policy.queue_of(self.name),
                wanted.get("fair", False),
            ),
        )
        if version < VERSION:
            raise SchemaMissingError(
                f"mailbox {self.name!r}: the schema in this database has version {version}, this "
                f"Pillarbox needs {VERSION}: run `pillarbox postgres init URL`"
            )
        if found[0] is None:
            raise no_queue(self.name)
        self.settings = Settings(*found)
        self.queue_id = self.settings.queue_id
        return self.settings

    def call(self, statement: str, *parameters: Any) -> Call:
        """A statement whose first parameter is this queue."""
        parameters = str(self.queue_id), *parameters
        return Call(self.name, statement, parameters, connection=self.connection)

    def ask(self, call: Call) -> Verb[Any]:
        """Its rows. A queue that was deleted is created again, without its settings."""
        if self.settings is None:
            yield from self.open()
            call.parameters = str(self.queue_id), *call.parameters[1:]
        try:
            return (yield call)
        except QueueDeletedError:
            if call.connection is not None:
                raise
        self.wanted = {}
        self.low_water = LowWater()
        yield from self._declare()
        call.parameters = str(self.queue_id), *call.parameters[1:]
        return (yield call)

    def _send(self, sent: Outgoing) -> Verb[list[str]]:
        if not sent.bodies:
            return []
        call = self.call(
            _SEND,
            sent.bodies,
            wire.packed(sent.attributes) if sent.attributes else None,
            str(sent.priority),
            wire.microseconds(sent.delay),
            sent.group,
            sent.deduplication_id,
            _DEDUPLICATION_US,
            str(self.low_water.since),
            self.connection is None,
        )
        call.repeatable = sent.deduplication_id is not None
        ids, until = (yield from self.ask(call))[0]
        if self.connection is None:
            self.low_water.since = until
        return [wire.public_id(number) for number in ids]

    def answer(self, in_reply_to: str, body: Any) -> Verb[str]:
        """Send `body` as the answer to a message."""
        data, noted = answer(in_reply_to, body)
        limits.body_bytes(data, self.max_body_bytes)
        reply_queue = is_reply_queue(self.name)
        if reply_queue:
            self.wanted = {"create": False}
        try:
            yield from self._declare()
        except MailboxError:
            if reply_queue:  # a client makes its own, and is gone
                return dropped(self.name, in_reply_to)
            raise
        ids = yield from self._send(Outgoing([data], attributes=noted))
        return ids[0]

    def expire(self) -> Verb[None]:
        """Let the queue end by itself if nothing happens for long: its client may be gone."""
        statement = "SELECT pillarbox.expire_queue(%s, %s::integer)"
        yield Call(self.name, statement, (self.name, str(IDLE_SECONDS_MAX)))
