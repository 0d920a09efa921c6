"""Messages as rows: what a sender packs, and what a receiver is given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from pillarbox.core.errors import SerializationError
from pillarbox.mailbox.answers import IN_REPLY_TO, REPLY_TO
from pillarbox.mailbox.message import DeadLetter, Details, FailedDelivery, as_datetime
from pillarbox.mailbox.verbs import user_attributes

_COLUMNS = (
    "id, rank, place, enqueued_at, deliveries, priority, group_name, head, body, attempts, source,"
    " reason, died_at"
)
ID, RANK, PLACE, ENQUEUED_AT, DELIVERIES, PRIORITY, GROUP, HEAD, BODY = range(9)
ATTEMPTS, SOURCE, REASON, DIED_AT = range(9, 13)
_US = 1_000

packed = msgspec.msgpack.encode  # of attributes
_unpack_attributes = msgspec.msgpack.Decoder(dict[str, str]).decode

Row = tuple[Any, ...]


class Delivery(Struct, frozen=True, gc=False):
    """One delivery: what a message asks its mailbox about. A token of b"" was only looked at."""

    id: int
    token: bytes
    row: Row  # see the names above; without its body


def rows_of(function: str) -> str:
    """The statement that asks a function for messages."""
    return f"SELECT {_COLUMNS} FROM pillarbox.{function}"  # noqa: S608 - all of it is ours


def microseconds(nanoseconds: int) -> str:
    """A time in the unit of the database, never rounded down."""
    return str(-(-nanoseconds // _US))


def array(numbers: Iterable[int]) -> str:
    """An array of numbers as PostgreSQL reads it."""
    return f"{{{','.join(map(str, numbers))}}}"


def public_id(number: int) -> str:
    """The id that users see."""
    return f"{number:016x}"


def number_of(message_id: str) -> int | None:
    """The number behind an id; None if it is no id of ours."""
    try:
        number = int(message_id, 16)
    except ValueError:
        return None
    return number if len(message_id) == 16 and 0 < number < 1 << 63 else None


def attributes_in(head: bytes | None) -> dict[str, str]:
    if head is None:
        return {}
    try:
        return _unpack_attributes(head)
    except msgspec.MsgspecError as error:
        raise SerializationError(f"its attributes can't be read: {error}") from error


def handle(delivery: Delivery) -> str:
    """Names a delivery to people; its token can't be told from it."""
    if not delivery.token:
        return ""
    identity = public_id(delivery.id).encode()
    return hashlib.blake2b(identity, key=delivery.token, digest_size=16).hexdigest()


def details(delivery: Delivery) -> Details:
    """What only some callers ask of a message."""
    row = delivery.row
    noted = attributes_in(row[HEAD])
    return Details(
        enqueued_at=as_datetime(row[ENQUEUED_AT] * _US),
        attributes=user_attributes(noted),
        priority=row[PRIORITY],
        group=row[GROUP],
        reply_to=noted.get(REPLY_TO),
        in_reply_to=noted.get(IN_REPLY_TO),
        dead_letter=_dead_letter(row),
    )


def _dead_letter(row: Row) -> DeadLetter | None:
    if row[SOURCE] is None:
        return None
    history = tuple(FailedDelivery(_time(a), _time(b), how) for a, b, how in row[ATTEMPTS] or ())
    return DeadLetter(row[SOURCE], row[REASON].decode(), _time(row[DIED_AT]), history)


def _time(microseconds_: int) -> Any:
    return as_datetime(microseconds_ * _US)
