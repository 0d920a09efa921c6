"""What a message may say: characters, size, attributes, each refused in SQS's own words.

A message's attributes are kept as plain texts, so that every mailbox can read them; what they
are on the SQS wire (their types) is noted beside them under names that mailboxes reserve.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from pillarbox.broker.errors import SqsError, invalid
from pillarbox.broker.shapes import Attribute
from pillarbox.core.limits import PRIORITY_MAX

MESSAGE_BYTES_MAX: Final = 1_048_576
ATTRIBUTES_MAX: Final = 10
PRIORITY: Final = "Pillarbox.Priority"
TRACE: Final = "AWSTraceHeader"

# Beside the attributes that users see: their types, and what the system knows.
TYPES_NOTE: Final = "pillarbox.types"
TRACE_NOTE: Final = "pillarbox.trace"
GROUP_NOTE: Final = "pillarbox.group"
SENDER_NOTE: Final = "pillarbox.sender"

_NAME_MAX = 256
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"[A-Za-z0-9_\-.]+\Z")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
_RESERVED = ("aws.", "amazon.")
_TYPES = ("String", "Number", "Binary")
_ALLOWED = "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"


def check_characters(text: str, where: str) -> None:
    """XML can't carry every character, so neither can SQS."""
    if text.isprintable() and text.isascii():
        return
    found = _FORBIDDEN.search(text)
    if found is not None:
        raise SqsError(
            "InvalidMessageContents",
            f"Invalid binary character '#x{ord(found[0]):X}' was found in the {where}, the set of "
            f"allowed characters is {_ALLOWED}",
        )


def check_attributes(attributes: Mapping[str, Attribute]) -> int:
    """Raise unless every one is well-formed; how many bytes they take together."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise invalid(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}]."
        )
    return sum(_check(name, attribute) for name, attribute in attributes.items())


def _check(name: str, attribute: Attribute) -> int:
    _check_name(name)
    kind = attribute.DataType or ""
    if not kind:
        raise invalid(
            f"The message attribute '{name}' must contain a non-empty message attribute type."
        )
    base = kind.partition(".")[0]
    if base not in _TYPES or len(kind) > _NAME_MAX:
        raise invalid(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the "
            "following supported type prefixes: Binary, Number, String."
        )
    return len(name) + len(kind.encode()) + _check_value(name, base, attribute)


def _check_name(name: str) -> None:
    if not name or len(name) > _NAME_MAX:
        raise invalid(
            f"Length of message attribute name must be greater than 0 and at most {_NAME_MAX}."
        )
    if not _NAME.match(name):
        raise invalid(
            f"The message attribute name '{name}' is invalid. Attribute name can contain A-Z, "
            "a-z, 0-9, underscore (_), hyphen (-), and period (.) characters."
        )
    if name.lower().startswith(_RESERVED):
        raise invalid(
            f"The message attribute name '{name}' is invalid. Attribute name can't start with "
            "AWS. or Amazon."
        )
    if name[0] == "." or name[-1] == "." or ".." in name:
        raise invalid(
            f"The message attribute name '{name}' is invalid. Attribute name can't start or end "
            "with a period, or have periods in succession."
        )


def _check_value(name: str, base: str, attribute: Attribute) -> int:
    wanted = "Binary" if base == "Binary" else "String"
    value = attribute.BinaryValue if base == "Binary" else attribute.StringValue
    other = attribute.StringValue if base == "Binary" else attribute.BinaryValue
    if value is None and other is not None:
        raise invalid(
            f"The message attribute '{name}' with type '{attribute.DataType}' must use field "
            f"'{wanted}'."
        )
    if not value or other is not None:
        raise invalid(
            f"Message (user) attribute '{name}' must contain a non-empty value of type "
            f"'{attribute.DataType}'."
        )
    if isinstance(value, bytes):
        return len(value)
    check_characters(value, f"message attribute '{name}'")
    if base == "Number" and not _NUMBER.match(value):
        raise invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return len(value.encode())


def check_system_attributes(attributes: Mapping[str, Attribute]) -> None:
    for name, attribute in attributes.items():
        if name != TRACE:
            raise invalid(
                f"Message system attribute name '{name}' is invalid. You can use only the "
                f"following system attribute: {TRACE}."
            )
        if attribute.DataType != "String" or not attribute.StringValue:
            raise invalid(
                f"Message (system) attribute '{name}' must contain a non-empty value of type "
                "'String'."
            )


def priority_of(attributes: Mapping[str, Attribute], default: int) -> int:
    """The priority that a message asks for by its attribute."""
    asked = attributes.get(PRIORITY)
    if asked is None:
        return default
    text = asked.StringValue or ""
    if not text.isdecimal() or not text.isascii() or int(text[:4]) > PRIORITY_MAX:
        raise invalid(f"The message attribute '{PRIORITY}' must be a number from 0 to 255.")
    return int(text)


def pack(attributes: Mapping[str, Attribute]) -> dict[str, str]:
    """Attributes as a message keeps them."""
    kept: dict[str, str] = {}
    types: dict[str, str] = {}
    for name, attribute in attributes.items():
        if attribute.BinaryValue is not None:
            kept[name] = base64.b64encode(attribute.BinaryValue).decode()
        else:
            kept[name] = attribute.StringValue or ""
        if attribute.DataType != "String":
            types[name] = attribute.DataType or ""
    if types:
        kept[TYPES_NOTE] = msgspec.json.encode(types).decode()
    return kept


def unpack(kept: Mapping[str, str] | None) -> dict[str, Attribute]:
    """The attributes of a message, as users of SQS know them."""
    if not kept:
        return {}
    note = kept.get(TYPES_NOTE)
    types: dict[str, str] = msgspec.json.decode(note) if note is not None else {}
    found = {}
    for name, text in kept.items():
        if name.startswith("pillarbox."):
            continue
        kind = types.get(name, "String")
        if kind.startswith("Binary"):
            found[name] = Attribute(kind, None, base64.b64decode(text))
        else:
            found[name] = Attribute(kind, text)
    return found
