"""The encoding of messages in Redis.

A packed message is a byte 0 and the body; or 1, the length of the attributes (u32), the
attributes (MessagePack), and the body. Scripts never decode it, except to write the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Layout
from struct import error as LayoutError

import msgspec
from msgspec import Struct

from pillarbox.core.errors import SerializationError
from pillarbox.mailbox.message import DeadLetter, Details
from pillarbox.mailbox.verbs import details_of

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
    """The state of a message when it was delivered; see state.lua."""

    priority: int
    deliveries: int
    group: str | None
    rest: bytes


class Delivery(Struct, frozen=True, gc=False):
    """One delivery. The token is b"" for a peeked message."""

    id: bytes
    token: bytes
    number: int
    head: bytes  # header of the packed message: the attributes
    score: bytes
    state: bytes | None


def microseconds(nanoseconds: int) -> int:
    """Convert to microseconds, the unit of the scripts, rounded up."""
    return -(-nanoseconds // _US)


def head_of(attributes: Mapping[str, str]) -> bytes:
    """Return the header of a packed message with attributes."""
    packed = _pack(attributes)
    return b"\1" + _LENGTH.pack(len(packed)) + packed


def split(value: bytes | None) -> tuple[bytes, bytes]:
    """Split a packed message into header and body; raise SerializationError if invalid."""
    if value is None:
        raise SerializationError("the body is missing: another client deleted it in Redis")
    if value[:1] == PLAIN:
        return PLAIN, value[1:]
    if value[:1] == b"\1" and len(value) >= _HEAD_BYTES:
        end = _HEAD_BYTES + _LENGTH.unpack_from(value, 1)[0]
        try:
            _unpack_attributes(value[_HEAD_BYTES:end])
        except msgspec.MsgspecError as error:
            raise SerializationError(
                f"the message's attributes can't be decoded: {error}"
            ) from error
        return value[:end], value[end:]
    raise SerializationError(
        f"it is not a packed message; its {len(value)} bytes begin {value[:20]!r}"
    )


def attributes_in(head: bytes) -> dict[str, str]:
    """Return the attributes in the head of a packed message."""
    return _unpack_attributes(head[_HEAD_BYTES:]) if len(head) > 1 else {}


def state_of(raw: bytes | None) -> State | None:
    """Decode a state; None if it is missing or invalid."""
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
    """Return the number of failed deliveries."""
    if raw is None or len(raw) <= _STATE.size:
        return 0
    deliveries: int = _STATE.unpack_from(raw)[1]
    return deliveries


def details(delivery: Delivery) -> Details:
    """What only some callers ask of a message."""
    state = state_of(delivery.state)
    sent_ns = int(delivery.id[:14], 16) * _US
    noted = attributes_in(delivery.head)
    if state is None:
        lane = 255 - int(float(delivery.score)) // _SPAN
        return details_of(sent_ns, noted, lane, None, None)
    return details_of(sent_ns, noted, state.priority, state.group, dead_letter(state))


def first_leased_at(state: State) -> int | None:
    """Return the time of the first delivery in nanoseconds, if known."""
    attempts = _unpack(state.rest)[0] if state.rest else None
    return int(attempts[0][0]) * _US if attempts else None


def source_in(raw: bytes | None) -> str | None:
    """Return the source queue of a message, if it was dead-lettered."""
    state = state_of(raw)
    letter = None if state is None else dead_letter(state)
    return None if letter is None else letter.source


def dead_letter(state: State) -> DeadLetter | None:
    """Return the dead-letter details of a message, if it was dead-lettered."""
    attempts, death, *_ = _unpack(state.rest) if state.rest else (None, None)
    if not death:
        return None
    source, reason, died_at = death
    ended = ((int(a) * _US, int(b) * _US, how) for a, b, how in attempts or ())
    return DeadLetter.of(source, reason, int(died_at) * _US, ended)
