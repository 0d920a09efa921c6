"""The encoding of messages as rows of the database."""

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

packed = msgspec.msgpack.encode  # encodes attributes
_unpack_attributes = msgspec.msgpack.Decoder(dict[str, str]).decode

Row = tuple[Any, ...]


class ByteArray(list[bytes]):
    """A parameter of type bytea[]."""


class Delivery(Struct, frozen=True, gc=False):
    """One delivery. The token is b"" for a peeked message."""

    id: int
    token: bytes
    row: Row  # the columns above, without the body


def rows_of(function: str) -> str:
    """Return the statement that selects messages from a function."""
    return f"SELECT {_COLUMNS} FROM pillarbox.{function}"  # noqa: S608 - no user input


def microseconds(nanoseconds: int) -> str:
    """Convert to microseconds, the unit of the database, rounded up."""
    return str(-(-nanoseconds // _US))


def array(numbers: Iterable[int]) -> str:
    """Return a PostgreSQL array literal of numbers."""
    return f"{{{','.join(map(str, numbers))}}}"


def public_id(number: int) -> str:
    """Return the public message id."""
    return f"{number:016x}"


def number_of(message_id: str) -> int | None:
    """Return the number of a public message id; None if it is invalid."""
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
        raise SerializationError(f"the message's attributes can't be decoded: {error}") from error


def details(delivery: Delivery) -> Details:
    """Return the details of a message, decoded on demand."""
    row, letter = delivery.row, None
    if row[SOURCE] is not None:
        ended = ((a * _US, b * _US, how) for a, b, how in row[ATTEMPTS] or ())
        letter = DeadLetter.of(row[SOURCE], row[REASON].decode(), row[DIED_AT] * _US, ended)
    noted = attributes_in(row[HEAD])
    return details_of(row[ENQUEUED_AT] * _US, noted, row[PRIORITY], row[GROUP], letter)
