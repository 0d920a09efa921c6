"""Messages as SQS's API takes and gives them; their form is that of `mailbox.sqs_form`.

Everything is checked against SQS's limits before it is asked. What others wrote beside a body
is shown as text.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.sqs_limits import MESSAGE_BYTES_MAX
from pillarbox.mailbox.message import DeadLetter, Details, as_datetime
from pillarbox.mailbox.sqs.address import from_arn
from pillarbox.mailbox.sqs_form import (
    ALONE,
    FORM,
    IN_REPLY_TO,
    PRIORITY,
    REPLY_TO,
    REST,
    beside,
    body_data,
    body_text,
    rest_of,
)

RESERVED = limits.RESERVED_PREFIX


_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})

Entry = dict[str, Any]


class EntryAttributes:
    """The attributes of every message of one send, in SQS's form for each body."""

    def __init__(self, attributes: Mapping[str, str], own: Mapping[str, str]) -> None:
        self._attributes = attributes
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
        if body_bytes + beside_bytes > MESSAGE_BYTES_MAX:
            raise self._too_long(len(data), body_bytes, beside_bytes)
        return {"MessageBody": text, **beside}, body_bytes + beside_bytes

    def _too_long(self, given: int, body: int, beside: int) -> InvalidParameterError:
        size = f"{given:,} bytes" if given == body else f"{given:,} bytes, {body:,} as base64"
        if body > MESSAGE_BYTES_MAX or not (self._attributes or self._own):
            return InvalidParameterError("body", size, f"at most {MESSAGE_BYTES_MAX:,} bytes")
        return InvalidParameterError(
            "attributes" if self._attributes else "reply_to",
            f"{beside:,} bytes beside a body of {size}",
            f"at most {MESSAGE_BYTES_MAX:,} bytes together with the body; "
            "names, types and values in UTF-8",
        )


def body_bytes(message: Entry, *, as_json: bool) -> bytes:
    """The body as it was sent; text is put in quotes for a reader of JSON."""
    form = _text(message.get("MessageAttributes", {}).get(FORM, {})) or ""
    data = body_data(message["Body"], form)
    return msgspec.json.encode(data.decode()) if as_json and "text" in form.split("+") else data


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
    if not users and not own:
        return {}, 0
    sent = beside(users, own)
    noted = {name: _typed(name, value) for name, value in sent.items()}
    size = sum(
        len(name.encode()) + len(each["DataType"]) + len(each["StringValue"].encode())
        for name, each in noted.items()
    )
    return {"MessageAttributes": noted}, size


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
        known = rest_of(rest)
        found.update({REST: rest} if known is None else known)
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
