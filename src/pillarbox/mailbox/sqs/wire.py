"""How a message travels through SQS, whose bodies and attributes are text.

A body that SQS can carry as text travels as it is, so that other consumers can read it; any other
is base64 and says so in an attribute. So are attributes that SQS has no room or no characters
for: they share one attribute, as JSON. What others wrote beside a body is shown as text.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError, SerializationError
from pillarbox.mailbox.message import DeadLetter, Details, as_datetime
from pillarbox.mailbox.sqs.place import from_arn

PRIORITY = "Pillarbox.Priority"
REPLY_TO = "Pillarbox.ReplyTo"
IN_REPLY_TO = "Pillarbox.InReplyTo"
FORM = "Pillarbox.Encoding"  # of the body: base64, empty, text (which is no JSON), or two of these
REST = "Pillarbox.Attributes"  # those that don't fit, as JSON
RESERVED = limits.RESERVED_PREFIX
ALONE = "pillarbox-alone-"  # begins the group of a message that was sent without one

MESSAGE_BYTES_MAX = 1_048_576
BATCH_BYTES_MAX = 1_048_576
BATCH_MESSAGES_MAX = 10
ATTRIBUTES_MAX = 10  # of SQS; we take more
EMPTY = "(empty)"  # SQS takes no body without a character

_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"(?!aws\.|amazon\.)[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.IGNORECASE)
_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})

Entry = dict[str, Any]


class Beside:
    """What travels beside every body of one send: checked once, in SQS's form for each body."""

    def __init__(self, attributes: Mapping[str, str] | None, own: Mapping[str, str]) -> None:
        self._attributes = limits.user_attributes(attributes)
        self._own = own
        self._by_form: dict[str | None, tuple[Entry, int]] = {}

    def entry(self, data: bytes) -> tuple[Entry, int]:
        """A body with its attributes, and how much of SQS's limit they take."""
        text, form = body_text(data)
        if form not in self._by_form:
            forms = "+".join(filter(None, (self._own.get(FORM), form)))
            own = {**self._own, FORM: forms} if forms else self._own
            self._by_form[form] = _attributes(self._attributes, own)
        beside, beside_bytes = self._by_form[form]
        body_bytes = len(data) if form is None else len(text)
        self._check(len(data), body_bytes, beside_bytes)
        return {"MessageBody": text, **beside}, body_bytes + beside_bytes

    def _check(self, given: int, body: int, beside: int) -> None:
        if body + beside <= MESSAGE_BYTES_MAX:
            return
        size = f"{given:,} bytes" if given == body else f"{given:,} bytes, {body:,} as base64"
        if body > MESSAGE_BYTES_MAX or not (self._attributes or self._own):
            raise InvalidParameterError("body", size, f"at most {MESSAGE_BYTES_MAX:,} bytes")
        raise InvalidParameterError(
            "attributes" if self._attributes else "reply_to",
            f"{beside:,} bytes beside a body of {size}",
            f"at most {MESSAGE_BYTES_MAX:,} bytes together with the body; "
            "names, types and values in UTF-8",
        )


def body_text(data: bytes) -> tuple[str, str | None]:
    """A body as text, and the name of its form if that is not the text itself."""
    if not data:
        return EMPTY, "empty"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        pass
    else:
        if not _UNFIT.search(text):
            return text, None
    return base64.b64encode(data).decode(), "base64"


def body_bytes(message: Entry, *, as_json: bool) -> bytes:
    """The body as it was sent; text is put in quotes for a reader of JSON."""
    forms = (_text(message.get("MessageAttributes", {}).get(FORM, {})) or "").split("+")
    data: bytes = message["Body"].encode()
    if "empty" in forms:
        data = b""
    elif "base64" in forms:
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise SerializationError(f"the body is said to be base64 and is not: {error}") from None
    return msgspec.json.encode(data.decode()) if as_json and "text" in forms else data


def details(message: Entry) -> Details:
    """What SQS tells of a message beside its body."""
    system = message.get("Attributes", {})
    noted = message.get("MessageAttributes", {})
    group = system.get("MessageGroupId")
    source = system.get("DeadLetterQueueSourceArn")
    return Details(
        enqueued_at=as_datetime(int(system.get("SentTimestamp", 0)) * 1_000_000),
        attributes=_users(noted) if noted else _NO_ATTRIBUTES,
        priority=_priority(noted),
        group=None if group is None or group.startswith(ALONE) else group,
        reply_to=_text(noted.get(REPLY_TO, {})),
        in_reply_to=_text(noted.get(IN_REPLY_TO, {})),
        dead_letter=None if source is None else _dead_letter(source, system),
    )


def attributes_again(message: Entry) -> Entry:
    """The attributes of a received message in the form in which they can be sent again."""
    noted = message.get("MessageAttributes")
    return {"MessageAttributes": noted} if noted else {}


def _attributes(users: Mapping[str, str], own: Mapping[str, str]) -> tuple[Entry, int]:
    fit = [name for name, value in users.items() if _fits(name, value)]
    room = ATTRIBUTES_MAX - len(own)
    if len(fit) > room or len(fit) < len(users):
        fit = fit[: room - 1]
        rest = {name: value for name, value in users.items() if name not in fit}
        packed = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
        own = {**own, REST: _UNFIT.sub(_escaped, packed)}
    sent = {**{name: users[name] for name in fit}, **own}
    if not sent:
        return {}, 0
    noted = {name: _typed(name, value) for name, value in sent.items()}
    size = sum(
        len(name.encode()) + len(each["DataType"]) + len(each["StringValue"].encode())
        for name, each in noted.items()
    )
    return {"MessageAttributes": noted}, size


def _fits(name: str, value: str) -> bool:
    return bool(_NAME.fullmatch(name) and value and not _UNFIT.search(value))


def _escaped(unfit: re.Match[str]) -> str:
    return f"\\u{ord(unfit[0]):04x}"


def _typed(name: str, value: str) -> dict[str, str]:
    return {"DataType": "Number" if name == PRIORITY else "String", "StringValue": value}


def _text(noted: Mapping[str, Any]) -> str | None:
    """An attribute of any type as text: a number as written, bytes as base64."""
    if "StringValue" in noted:
        return str(noted["StringValue"])
    data = noted.get("BinaryValue")
    return None if data is None else base64.b64encode(data).decode()


def _users(noted: Mapping[str, Any]) -> Mapping[str, str]:
    found = {}
    for name, each in noted.items():
        text = _text(each)
        if text is not None and not name.lower().startswith(RESERVED):
            found[name] = text
    rest = _text(noted.get(REST, {}))
    if rest is not None:
        try:
            found.update(msgspec.json.decode(rest, type=dict[str, str]))
        except msgspec.DecodeError:  # not written by us: shown as it is
            found[REST] = rest
    return MappingProxyType(found)


def _priority(noted: Mapping[str, Any]) -> int:
    text = _text(noted.get(PRIORITY, {})) or "0"
    number = int(text) if text.isdecimal() else 0
    return min(number, limits.PRIORITY_MAX)


def _dead_letter(source: str, system: Mapping[str, str]) -> DeadLetter:
    """SQS tells where a message died, not when: its first receive is the earliest it can be."""
    first = system.get("ApproximateFirstReceiveTimestamp", system.get("SentTimestamp", "0"))
    return DeadLetter(
        source=from_arn(source).name,
        reason="it was received more often than the redrive policy of its queue allows",
        died_at=as_datetime(int(first) * 1_000_000),
        history=(),
    )
