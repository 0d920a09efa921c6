"""The limits of a mailbox, and the functions that check them.

Callers pass seconds; the state machine uses nanoseconds. A check returns the value in the core's
unit or raises an error that names the parameter and its range.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pillarbox.core.errors import InvalidParameterError

SECOND_NS = 1_000_000_000

BODY_BYTES_MAX = 1_048_576  # body and attributes together, unless max_body_bytes is set
BODY_BYTES_CEILING = 1 << 30  # maximum of max_body_bytes
PRIORITY_MAX = 255  # priorities are 0 to 255
MESSAGES_MAX = 10_000  # messages per receive
VISIBILITY_SECONDS_MAX = 43_200  # length of a lease
VISIBILITY_SECONDS_DEFAULT = 30  # length of a lease, if not given
WAIT_SECONDS_MAX = 43_200  # how long a receive may wait
DELAY_SECONDS_MAX = 250_000_000_000  # about 7,900 years, because dates end with the year 9999
DELIVERIES_MAX = 1_000  # max_deliveries of a dead-letter policy
RESERVED_PREFIX = "pillarbox."  # prefix of attribute names that are reserved for Pillarbox
ATTRIBUTES_MAX = 64  # attributes per message
ATTRIBUTE_NAME_CHARS_MAX = 256  # length of an attribute name
GROUP_CHARS_MAX = 128  # length of a group name
DEDUPLICATION_SECONDS = 300  # how long a deduplication id is remembered
NAME_CHARS_MAX = 80  # length of a queue name

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?\Z")
_TOKEN = re.compile(r"[!-~]{1,128}\Z")


def seconds(parameter: str, value: Any, most: int) -> int:
    """Convert seconds to whole nanoseconds, rounded up."""
    whole = type(value) is int
    if not whole and type(value) is not float:
        raise InvalidParameterError(parameter, value, f"a number from 0 to {most:,} (seconds)")
    if not 0 <= value <= most:  # also false for NaN
        raise InvalidParameterError(parameter, value, f"from 0 to {most:,} (seconds)")
    if whole:
        return int(value) * SECOND_NS
    nanoseconds = int(value * SECOND_NS)
    return nanoseconds if nanoseconds == value * SECOND_NS else nanoseconds + 1


def whole(parameter: str, value: Any, least: int, most: int) -> int:
    """Return a whole number after checking its range."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidParameterError(parameter, value, f"a whole number from {least:,} to {most:,}")
    return value


def one_of(parameter: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidParameterError(parameter, value, f"one of {', '.join(allowed)}")


def priority(value: Any) -> int:
    return whole("priority", value, 0, PRIORITY_MAX)


def body_bytes(body: bytes, most: int) -> None:
    if len(body) > most:
        raise InvalidParameterError("body", f"{len(body):,} bytes", f"at most {most:,} bytes")


def queue_name(value: Any, parameter: str = "name") -> str:
    """Return a queue's name after checking it by the rules of SQS."""
    if not isinstance(value, str) or not _NAME.match(value) or len(value) > NAME_CHARS_MAX:
        raise InvalidParameterError(
            parameter,
            value,
            f"1 to {NAME_CHARS_MAX} letters, digits, hyphens or underscores (.fifo may follow)",
        )
    return value


def token(parameter: str, value: Any) -> str:
    """Return a message group or deduplication id: printable ASCII without spaces."""
    if not isinstance(value, str) or not _TOKEN.match(value):
        raise InvalidParameterError(
            parameter, value, f"1 to {GROUP_CHARS_MAX} printable ASCII characters"
        )
    return value


def text(parameter: str, value: Any, least: int = 1) -> str:
    if not isinstance(value, str) or len(value) < least:
        raise InvalidParameterError(parameter, value, f"a str of at least {least} characters")
    utf8_bytes(parameter, value)
    return value


def utf8_bytes(parameter: str, value: str) -> int:
    """Return the length of a text in UTF-8; raise if it has lone surrogates."""
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidParameterError(
            parameter, value, "text that UTF-8 can carry, without lone surrogates"
        ) from None


def attributes(value: Any) -> dict[str, str]:
    """Return a copy of the attributes after checking them."""
    if not isinstance(value, Mapping):
        raise InvalidParameterError("attributes", value, "a mapping of str to str")
    if len(value) > ATTRIBUTES_MAX:
        raise InvalidParameterError("attributes", len(value), f"at most {ATTRIBUTES_MAX} entries")
    for name, content in value.items():
        if not isinstance(name, str) or not 1 <= len(name) <= ATTRIBUTE_NAME_CHARS_MAX:
            raise InvalidParameterError(
                "attributes", name, f"named by 1 to {ATTRIBUTE_NAME_CHARS_MAX} characters"
            )
        if not isinstance(content, str):
            raise InvalidParameterError(f"attributes[{name!r}]", content, "a str")
        utf8_bytes("attributes", name)
        utf8_bytes(f"attributes[{name!r}]", content)
    return dict(value)


def user_attributes(value: Any) -> dict[str, str]:
    """Return a copy of the user's attributes; reserved names are not allowed."""
    checked = attributes(value if value is not None else {})
    for name in checked:
        if name.lower().startswith(RESERVED_PREFIX):
            raise InvalidParameterError(
                "attributes", name, f"named without the reserved prefix {RESERVED_PREFIX!r}"
            )
    return checked


def message_bytes(parameter: str, body_bytes: int, beside: Mapping[str, str], most: int) -> None:
    """Check the total size of a body and its attributes."""
    rest = sum(len(name.encode()) + len(content.encode()) for name, content in beside.items())
    if body_bytes + rest > most:
        raise InvalidParameterError(
            parameter,
            f"{rest:,} bytes beside a body of {body_bytes:,}",
            f"at most {most:,} bytes together with the body, names and values in UTF-8",
        )
