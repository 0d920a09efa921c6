"""Encodes Pillarbox messages as SQS messages, for `SQSMailbox` and the broker.

A body that SQS can carry as text is sent unchanged, so that other consumers can read it; any
other body is sent as base64, marked by an attribute. Attributes that SQS can't carry (too many,
or unsupported characters) are combined into one, as JSON. Ours have reserved names.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from pillarbox.core.errors import SerializationError
from pillarbox.core.sqs_limits import ATTRIBUTES_MAX

PRIORITY: Final = "Pillarbox.Priority"
REPLY_TO: Final = "Pillarbox.ReplyTo"
IN_REPLY_TO: Final = "Pillarbox.InReplyTo"
# The encoding of the body: base64, empty, text (not JSON), or two of these.
FORM: Final = "Pillarbox.Encoding"
REST: Final = "Pillarbox.Attributes"  # attributes that SQS can't carry, as JSON
ALONE: Final = "pillarbox-alone-"  # prefix of the group of a message sent without one
EMPTY: Final = "(empty)"  # SQS does not accept an empty body

UNFIT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"(?!aws\.|amazon\.)[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.IGNORECASE)


def body_text(data: bytes) -> tuple[str, str | None]:
    """Return a body as text, and the name of its encoding if it was encoded."""
    if not data:
        return EMPTY, "empty"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        pass
    else:
        if (text.isascii() and text.isprintable()) or not UNFIT.search(text):
            return text, None
    return base64.b64encode(data).decode(), "base64"


def body_data(text: str, form: str) -> bytes:
    """Decode a body from this encoding."""
    forms = form.split("+")
    if "empty" in forms:
        return b""
    if "base64" not in forms:
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SerializationError(f"the body is marked as base64, but is not: {error}") from None


def beside(
    users: Mapping[str, str], own: Mapping[str, str], *, any_script: bool = False
) -> dict[str, str]:
    """Return all attributes of a message, with those that SQS can't carry combined into one.

    AWS accepts letters of any script in names (`any_script`), other servers only ASCII.
    """
    names = map(in_ascii, users) if any_script else users
    fit = [
        name
        for (name, value), plain in zip(users.items(), names, strict=True)
        if _fits(plain, value)
    ]
    room = ATTRIBUTES_MAX - len(own)
    if len(fit) > room or len(fit) < len(users):
        fit = fit[: room - 1]
        rest = {name: value for name, value in users.items() if name not in fit}
        packed = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
        own = {**own, REST: UNFIT.sub(_escaped, packed)}
    return {**{name: users[name] for name in fit}, **own}


def in_ascii(name: str) -> str:
    """Return the name with `x` for each letter and digit that is not ASCII."""
    if name.isascii():
        return name
    return "".join(
        "x" if not char.isascii() and (char.isalpha() or char.isdecimal()) else char
        for char in name
    )


def rest_of(text: str) -> dict[str, str] | None:
    """Return the combined attributes; None if Pillarbox did not write them."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return None


def _fits(name: str, value: str) -> bool:
    return bool(_NAME.fullmatch(name) and value and not UNFIT.search(value))


def _escaped(unfit: re.Match[str]) -> str:
    return f"\\u{ord(unfit[0]):04x}"
