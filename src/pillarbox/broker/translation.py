"""Converts messages between SQS and mailboxes, so that each can read what the other sent.

The store keeps the mailbox form: the body as bytes, attributes as plain strings, system data under
reserved names. If an SQS client uses a reserved name with a value that is not valid there, the
attribute is stored under another name, so that SQS clients get every message back as it was sent.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

import msgspec

from pillarbox.broker.shapes import Attribute
from pillarbox.core.errors import SerializationError
from pillarbox.core.limits import RESERVED_PREFIX
from pillarbox.mailbox import answers, sqs_form
from pillarbox.mailbox.sqs_form import FORM, PRIORITY, REST

# Reserved names: SQS types of attributes, and system data.
TYPES_NOTE: Final = "pillarbox.types"
TRACE_NOTE: Final = "pillarbox.trace"
GROUP_NOTE: Final = "pillarbox.group"
SENDER_NOTE: Final = "pillarbox.sender"
FORM_NOTE: Final = answers.FORM
_ASIDE: Final = "pillarbox.sqs."  # prefix of attributes that only SQS clients see
_NAMES: Final = {
    answers.REPLY_TO: sqs_form.REPLY_TO,
    answers.IN_REPLY_TO: sqs_form.IN_REPLY_TO,
}
_NOTES: Final = {name: note for note, name in _NAMES.items()}
_NUMBERS: Final = {PRIORITY: "Number"}
_SYSTEM: Final = frozenset((TRACE_NOTE, GROUP_NOTE, SENDER_NOTE))  # not SQS message attributes


def pack(
    text: str, body: bytes, attributes: Mapping[str, Attribute], priority: int
) -> tuple[bytes, dict[str, str]]:
    """Convert body and attributes from SQS to the stored form."""
    kept: dict[str, str] = {}
    types: dict[str, str] = {}
    for name, attribute in attributes.items():
        kind = attribute.DataType or ""
        key, value = name, _value(attribute)
        if is_ours(name):
            if name == FORM and kind == "String" and (data := _data(text, value)) is not None:
                body = data
                notes: dict[str, str] | None = {FORM_NOTE: "text"} if "text" in value else {}
            else:
                notes = _notes(name, kind, value, priority, attributes)
            if notes is not None:
                kept.update(notes)
                continue
            key = _ASIDE + name
        kept[key] = value
        if kind != "String":
            types[key] = kind
    if types:
        kept[TYPES_NOTE] = msgspec.json.encode(types).decode()
    return body, kept


def unpack(
    body: bytes, kept: Mapping[str, str] | None, priority: int
) -> tuple[str, dict[str, Attribute]]:
    """Convert body and attributes from the stored form to SQS."""
    text, form = sqs_form.body_text(body)
    if not priority and form is None and (not kept or kept.keys() <= _SYSTEM):
        return text, {}
    kept = kept or {}
    note = kept.get(TYPES_NOTE)
    types: dict[str, str] = msgspec.json.decode(note) if note is not None else {}
    forms = "+".join(filter(None, (kept.get(FORM_NOTE), form)))
    own = {PRIORITY: str(priority)} if priority else {}
    own |= {FORM: forms} if forms else {}
    own |= {name: kept[note] for note, name in _NAMES.items() if note in kept}
    users = {name: value for name, value in kept.items() if not is_ours(name)}
    found = {
        name: _attribute(types.get(name) or _NUMBERS.get(name, "String"), value)
        for name, value in (sqs_form.beside(users, {}, any_script=True) | own).items()
    }
    for key, value in kept.items():
        if key.startswith(_ASIDE):
            found[key.removeprefix(_ASIDE)] = _attribute(types.get(key, "String"), value)
    return text, found


def on_wire(attribute: Attribute) -> dict[str, str]:
    """Return an attribute as in responses, with bytes in base64."""
    name = "StringValue" if attribute.BinaryValue is None else "BinaryValue"
    return {name: _value(attribute), "DataType": attribute.DataType or "String"}


def is_ours(name: str) -> bool:
    """Whether a name is reserved."""
    return name.lower().startswith(RESERVED_PREFIX)


def group_of(group: str | None, kept: Mapping[str, str] | None) -> str | None:
    """Return the group to show to a mailbox: None for one that only SQS needed."""
    if group is None and kept:
        group = kept.get(GROUP_NOTE)
    return None if group is None or group.startswith(sqs_form.ALONE) else group


def _notes(
    name: str, kind: str, value: str, priority: int, attributes: Mapping[str, Attribute]
) -> dict[str, str] | None:
    """Convert an attribute with a reserved name; None if its value is not valid there."""
    if name == PRIORITY and kind == "Number" and priority and value == str(priority):
        return {}  # the message itself has it
    if name in _NOTES and kind == "String":
        return {_NOTES[name]: value}
    rest = sqs_form.rest_of(value) if name == REST and kind == "String" else None
    if rest is None or any(is_ours(each) or each in attributes for each in rest):
        return None
    return rest


def _data(text: str, form: str) -> bytes | None:
    """Decode a body from this form; None if encoding it again would give another text."""
    try:
        data = sqs_form.body_data(text, form)
    except SerializationError:
        return None
    again, bare = sqs_form.body_text(data)
    forms = [each for each in ("text" if "text" in form else None, bare) if each]
    return data if again == text and form == "+".join(forms) else None


def _value(attribute: Attribute) -> str:
    if attribute.BinaryValue is not None:
        return base64.b64encode(attribute.BinaryValue).decode()
    return attribute.StringValue or ""


def _attribute(kind: str, value: str) -> Attribute:
    if kind.startswith("Binary"):
        return Attribute(kind, None, base64.b64decode(value))
    return Attribute(kind, value)
