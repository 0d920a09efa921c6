"""Limits on a message's characters, size and attributes, with the error texts of SQS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pillarbox.broker.errors import SqsError, invalid
from pillarbox.broker.limits import decimal
from pillarbox.broker.shapes import Attribute, SendMessage
from pillarbox.broker.translation import is_ours
from pillarbox.core.limits import PRIORITY_MAX
from pillarbox.core.sqs_limits import ATTRIBUTES_MAX
from pillarbox.mailbox.sqs_form import PRIORITY, UNFIT, in_ascii

TRACE: Final = "AWSTraceHeader"

_NAME_MAX = 256
_NAME = re.compile(r"[A-Za-z0-9_\-.]+\Z")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
_RESERVED = ("aws.", "amazon.")
_TYPES = ("String", "Number", "Binary")
_ALLOWED = "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"


def check_characters(text: str) -> None:
    """Raise for characters that XML can't carry."""
    unfit = unfit_character(text)
    if unfit is not None:
        raise SqsError("InvalidMessageContents", _unfit(unfit, "message body"))


def unfit_character(text: str) -> str | None:
    if text.isascii() and text.isprintable():
        return None
    found = UNFIT.search(text)
    return None if found is None else found[0]


def _unfit(character: str, where: str) -> str:
    return (
        f"Invalid binary character '#x{ord(character):X}' was found in the {where}, the set of "
        f"allowed characters is {_ALLOWED}"
    )


def size_of(message: SendMessage) -> int:
    """Return the size that counts towards the limit, whether or not the message is valid."""
    size = len((message.MessageBody or "").encode(errors="surrogatepass"))
    for name, attribute in (message.MessageAttributes or {}).items():
        size += len(f"{name}{attribute.DataType or ''}{attribute.StringValue or ''}".encode())
        size += len(attribute.BinaryValue or b"")
    return size


def check_attributes(attributes: Mapping[str, Attribute]) -> int:
    """Raise unless every attribute is well formed; return their total size in bytes."""
    count = len(attributes)
    if count > ATTRIBUTES_MAX:  # system attributes don't count
        count = sum(not is_ours(name) for name in attributes)
    if count > ATTRIBUTES_MAX:
        raise invalid(
            f"Number of message attributes [{count}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}]."
        )
    return sum(_check(name, attribute) for name, attribute in attributes.items())


def _check(name: str, attribute: Attribute) -> int:
    _check_name(name)
    if attribute.StringListValues or attribute.BinaryListValues:
        raise SqsError(
            "UnsupportedOperation",
            "Message attribute list values in SendMessage operation are not supported.",
        )
    kind = attribute.DataType or ""
    if not kind and attribute.StringValue is None and attribute.BinaryValue is None:
        raise invalid(
            f"The message (user) attribute '{name}' must contain a non-empty message attribute "
            "value."
        )
    if not kind:
        raise invalid(
            f"The message (user) attribute '{name}' must contain a non-empty message attribute "
            "type."
        )
    base = kind.partition(".")[0]
    if base not in _TYPES:
        raise invalid(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the "
            "following supported type prefixes: Binary, Number, String."
        )
    if len(kind) > _NAME_MAX:
        raise invalid(f"Message (user) attribute type must be shorter than {_NAME_MAX} bytes.")
    return len(name.encode()) + len(kind.encode()) + _check_value(name, base, attribute)


def _check_name(name: str) -> None:
    if not name:
        raise invalid("The request must contain non-empty message (user) attribute names.")
    if len(name) > _NAME_MAX:
        raise invalid(f"Message (user) attribute name must be shorter than {_NAME_MAX} bytes.")
    if not _NAME.match(in_ascii(name)):
        raise invalid(
            "Invalid non-alphanumeric character was found in the message attribute name. Can only "
            "include alphanumeric characters, hyphens, underscores, or dots."
        )
    if name.lower().startswith(_RESERVED):
        raise invalid(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon'. These "
            "strings are reserved for internal use."
        )
    if name[0] == ".":
        raise invalid("Message (user) attribute name must not begin with character '.'.")
    if name[-1] == ".":
        raise invalid("Message (user) attribute name must not end with character '.'.")
    if ".." in name:
        raise invalid("Message (user) attribute name must not have successive '.' characters.")


def _check_value(name: str, base: str, attribute: Attribute) -> int:
    wanted = "Binary" if base == "Binary" else "String"
    value = attribute.BinaryValue if base == "Binary" else attribute.StringValue
    other = attribute.StringValue if base == "Binary" else attribute.BinaryValue
    if value is None and other is not None:
        raise invalid(
            f"Message (user) attribute '{name}' with type '{attribute.DataType}' must use field "
            f"'{wanted}'."
        )
    if other is not None:
        raise invalid(f"Message (user) attribute '{name}' must have a single value.")
    if not value:
        raise invalid(
            f"Message (user) attribute '{name}' must contain a non-empty value of type "
            f"'{attribute.DataType}'."
        )
    if isinstance(value, bytes):
        return len(value)
    unfit = unfit_character(value)
    if unfit is not None:
        raise invalid(_unfit(unfit, f"message attribute '{name}' value"))
    if base == "Number" and not _NUMBER.match(value):
        raise invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return len(value.encode())


def check_system_attributes(attributes: Mapping[str, Attribute]) -> None:
    for name, attribute in attributes.items():
        if name != TRACE:
            raise invalid(f"Message system attribute name '{name}' is invalid.")
        if attribute.DataType != "String" or not attribute.StringValue:
            raise invalid(
                f"Message system attribute '{name}' must contain a non-empty value of type "
                "'String'."
            )


def priority_of(attributes: Mapping[str, Attribute], default: int) -> int:
    """Return the priority that a message's attribute asks for."""
    asked = attributes.get(PRIORITY)
    if asked is None:
        return default
    priority = decimal(asked.StringValue or "")
    if priority is None or priority > PRIORITY_MAX:
        raise invalid(f"The message attribute '{PRIORITY}' must be a number from 0 to 255.")
    return priority
