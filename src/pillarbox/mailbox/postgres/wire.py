"""Messages as rows: what a sender packs, and what a receiver is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from pillarbox.core.errors import SerializationError
from pillarbox.mailbox.message import DeadLetter, Details
from pillarbox.mailbox.verbs import details_of

_COLUMNS = (
    "id, rank, place, enqueued_at, deliveries, priority, coalesce(group_name, tenant), head, body,"
    " attempts, source, reason, died_at"
)
ID, RANK, PLACE, ENQUEUED_AT, DELIVERIES, PRIORITY, GROUP, HEAD, BODY = range(9)
ATTEMPTS, SOURCE, REASON, DIED_AT = range(9, 13)
_US = 1_000
_QUOTED = r'"\\x%s"'

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


def byte_array(values: Iterable[bytes]) -> str:
    """An array of short byte strings, likewise; psycopg takes longer for a list."""
    return f"{{{','.join([_QUOTED % each.hex() for each in values])}}}"


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


def details(delivery: Delivery) -> Details:
    """What only some callers ask of a message."""
    row, letter = delivery.row, None
    if row[SOURCE] is not None:
        ended = ((a * _US, b * _US, how) for a, b, how in row[ATTEMPTS] or ())
        letter = DeadLetter.of(row[SOURCE], row[REASON].decode(), row[DIED_AT] * _US, ended)
    noted = attributes_in(row[HEAD])
    return details_of(row[ENQUEUED_AT] * _US, noted, row[PRIORITY], row[GROUP], letter)
