"""Messages as they lie in Redis: what a sender packs, and what a receiver is given.

A packed message is a byte 0 and the body; or 1, the length of the attributes (u32), the
attributes (MessagePack), and the body. Scripts never look inside, save to write the journal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any

import msgspec
from msgspec import Struct

from pillarbox.core.errors import SerializationError
from pillarbox.mailbox.answers import IN_REPLY_TO, REPLY_TO
from pillarbox.mailbox.message import DeadLetter, Details, FailedDelivery, as_datetime
from pillarbox.mailbox.verbs import user_attributes

_STATE = Layout(">BIddd16s")
_LENGTH = Layout(">I")
_HEAD_BYTES = 5
PLAIN = b"\0"  # the head of a message without attributes
_SPAN = 1 << 45
_US = 1_000

_pack = msgspec.msgpack.encode
_unpack_attributes = msgspec.msgpack.Decoder(dict[str, str]).decode
_unpack = msgspec.msgpack.decode


class State(Struct, frozen=True, gc=False):
    """What the queue knew of a message when it was delivered; see state.lua."""

    priority: int
    deliveries: int
    group: str | None
    rest: bytes


class Delivery(Struct, frozen=True, gc=False):
    """One delivery: what a message asks its mailbox about. A token of b"" was only looked at."""

    id: bytes
    token: bytes
    number: int
    head: bytes  # of the packed message: the attributes
    score: bytes
    state: bytes | None


def microseconds(nanoseconds: int) -> int:
    """A time in the unit of the scripts, never rounded down."""
    return -(-nanoseconds // _US)


def head_of(attributes: Mapping[str, str]) -> bytes:
    """What stands before the body of a packed message with attributes."""
    packed = _pack(attributes)
    return b"\1" + _LENGTH.pack(len(packed)) + packed


def split(value: bytes) -> tuple[bytes, bytes]:
    """The head and the body of a packed message; SerializationError if it is none."""
    if value[:1] == PLAIN:
        return PLAIN, value[1:]
    if value[:1] == b"\1" and len(value) >= _HEAD_BYTES:
        end = _HEAD_BYTES + _LENGTH.unpack_from(value, 1)[0]
        try:
            _unpack_attributes(value[_HEAD_BYTES:end])
        except msgspec.MsgspecError as error:
            raise SerializationError(f"its attributes can't be read: {error}") from error
        return value[:end], value[end:]
    raise SerializationError(
        f"it is no packed message; its {len(value)} bytes begin {value[:20]!r}"
    )


def attributes_in(head: bytes) -> dict[str, str]:
    """The attributes in the head of a packed message."""
    return _unpack_attributes(head[_HEAD_BYTES:]) if len(head) > 1 else {}


def state_of(raw: bytes | None) -> State | None:
    """A state, taken apart; None for what has none, or is none."""
    try:
        if raw is None or len(raw) <= _STATE.size:
            return None
        priority, deliveries, *_ = _STATE.unpack_from(raw)
        end = _STATE.size + 1 + raw[_STATE.size]
        group = raw[_STATE.size + 1 : end].decode() or None
    except (LayoutError, UnicodeDecodeError):
        return None
    return State(priority, deliveries, group, raw[end:])


def deliveries_in(raw: bytes | None) -> int:
    """How many deliveries failed so far."""
    if raw is None or len(raw) <= _STATE.size:
        return 0
    deliveries: int = _STATE.unpack_from(raw)[1]
    return deliveries


def handle(delivery: Delivery) -> str:
    """Names a delivery to people; its token can't be told from it."""
    if not delivery.token:
        return ""
    return hashlib.blake2b(delivery.id, key=delivery.token, digest_size=16).hexdigest()


def details(delivery: Delivery) -> Details:
    """What only some callers ask of a message."""
    state = state_of(delivery.state)
    noted = attributes_in(delivery.head)
    lane = 255 - int(float(delivery.score)) // _SPAN
    return Details(
        enqueued_at=as_datetime(int(delivery.id[:14], 16) * _US),
        attributes=user_attributes(noted),
        priority=lane if state is None else state.priority,
        group=state.group if state is not None else None,
        reply_to=noted.get(REPLY_TO),
        in_reply_to=noted.get(IN_REPLY_TO),
        dead_letter=dead_letter(state) if state is not None else None,
    )


def first_leased_at(state: State) -> int | None:
    """When it was first delivered, in nanoseconds, if that is known."""
    attempts = _unpack(state.rest)[0] if state.rest else None
    return int(attempts[0][0]) * _US if attempts else None


def dead_letter(state: State) -> DeadLetter | None:
    """Why a message died, if it did."""
    attempts, death, *_ = _unpack(state.rest) if state.rest else (None, None)
    if not death:
        return None
    source, reason, died_at = death
    history = tuple(FailedDelivery(_time(a), _time(b), how) for a, b, how in attempts or ())
    return DeadLetter(source, reason, _time(died_at), history)


def _time(microseconds: float) -> Any:
    return as_datetime(int(microseconds) * _US)
