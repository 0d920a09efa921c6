"""Conversion of messages to and from the SQS API, in the encoding of `mailbox.sqs_form`.

Everything is validated against SQS's limits before a call. Attributes written by other programs are
shown as text.
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

_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})

Entry = dict[str, Any]


class EntryAttributes:
    """The attributes shared by all messages of one send, encoded for SQS with each body."""

    def __init__(self, attributes: Mapping[str, str], own: Mapping[str, str]) -> None:
        self._attributes = attributes
        self._own = own
        self._by_form: dict[str | None, tuple[Entry, int]] = {}

    def entry(self, data: bytes) -> tuple[Entry, int]:
        """Return the SQS entry of a body, and its size towards SQS's limit."""
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
    """Return the body as it was sent; with `as_json`, text becomes a JSON string."""
    form = _text(message.get("MessageAttributes", {}).get(FORM, {})) or ""
    data = body_data(message["Body"], form)
    return msgspec.json.encode(data.decode()) if as_json and "text" in form.split("+") else data


def details(message: Entry) -> Details:
    """Return the details of a received message."""
    system = message.get("Attributes", {})
    attributes = message.get("MessageAttributes", {})
    group = system.get("MessageGroupId")
    source = system.get("DeadLetterQueueSourceArn")
    return Details(
        enqueued_at=as_datetime(int(system.get("SentTimestamp", 0)) * 1_000_000),
        attributes=_users(attributes) if attributes else _NO_ATTRIBUTES,
        priority=_priority(attributes),
        group=None if group is None or group.startswith(ALONE) else group,
        reply_to=_text(attributes.get(REPLY_TO, {})),
        in_reply_to=_text(attributes.get(IN_REPLY_TO, {})),
        dead_letter=None if source is None else _dead_letter(source, system),
    )


def _attributes(users: Mapping[str, str], own: Mapping[str, str]) -> tuple[Entry, int]:
    if not users and not own:
        return {}, 0
    attributes = {
        name: {"DataType": "Number" if name == PRIORITY else "String", "StringValue": value}
        for name, value in beside(users, own).items()
    }
    size = sum(
        len(name.encode()) + len(each["DataType"]) + len(each["StringValue"].encode())
        for name, each in attributes.items()
    )
    return {"MessageAttributes": attributes}, size


def _text(attribute: Mapping[str, Any]) -> str | None:
    """Return an attribute of any type as text: a number as written, bytes as base64."""
    if "StringValue" in attribute:
        return str(attribute["StringValue"])
    data = attribute.get("BinaryValue")
    return None if data is None else base64.b64encode(data).decode()


def _users(attributes: Mapping[str, Any]) -> Mapping[str, str]:
    found = {}
    for name, each in attributes.items():
        text = _text(each)
        if text is not None and not name.lower().startswith(limits.RESERVED_PREFIX):
            found[name] = text
    rest = _text(attributes.get(REST, {}))
    if rest is not None:
        known = rest_of(rest)
        found.update({REST: rest} if known is None else known)
    return MappingProxyType(found)


def _priority(attributes: Mapping[str, Any]) -> int:
    text = _text(attributes.get(PRIORITY, {})) or "0"
    number = int(text) if text.isdecimal() else 0
    return min(number, limits.PRIORITY_MAX)


def _dead_letter(source: str, system: Mapping[str, str]) -> DeadLetter:
    """Return the dead letter's details. SQS does not report the time: use the first receive."""
    first = system.get("ApproximateFirstReceiveTimestamp", system.get("SentTimestamp", "0"))
    return DeadLetter(
        source=from_arn(source).name,
        reason="it was received more often than the redrive policy of its queue allows",
        died_at=as_datetime(int(first) * 1_000_000),
        history=(),
    )
