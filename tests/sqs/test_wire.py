"""R34, R38: bodies and attributes in a form that SQS can carry, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import InvalidParameterError, SerializationError
from pillarbox.mailbox import sqs_form
from pillarbox.mailbox.sqs import wire
from pillarbox.mailbox.sqs.wire import EntryAttributes, body_bytes, details
from pillarbox.mailbox.sqs_form import body_text

UNFIT = "".join(map(chr, [*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF]))


def received(entry: dict[str, Any]) -> dict[str, Any]:
    """What is sent, as a receive would show it."""
    noted = entry.get("MessageAttributes", {})
    return {"Body": entry["MessageBody"], "MessageAttributes": noted, "Attributes": {}}


def sqs_takes(text: str) -> bool:
    return bool(text) and not set(text) & set(UNFIT)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_R38_any_bytes_come_back_and_travel_as_text_that_sqs_takes(data: bytes) -> None:
    entry, size = EntryAttributes({}, {}).entry(data)
    assert sqs_takes(entry["MessageBody"])
    assert size >= len(entry["MessageBody"].encode())
    assert body_bytes(received(entry), as_json=False) == data


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=50))
def test_R38_text_that_sqs_takes_travels_as_it_is(text: str) -> None:
    assert (body_text(text.encode()) == (text, None)) is sqs_takes(text)


@given(
    st.dictionaries(
        st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20).filter(
            lambda name: not name.lower().startswith("pillarbox.")
        ),
        st.text(st.characters(blacklist_categories=["Cs"]), max_size=20),
        max_size=30,
    )
)
def test_R1_any_attributes_come_back_and_sqs_takes_what_carries_them(
    attributes: dict[str, str],
) -> None:
    entry, _ = EntryAttributes(
        attributes, {sqs_form.PRIORITY: "7", sqs_form.REPLY_TO: "answers"}
    ).entry(b"\xff")
    noted = entry["MessageAttributes"]
    assert len(noted) <= sqs_form.ATTRIBUTES_MAX
    for name, each in noted.items():
        assert name.isascii()
        assert sqs_takes(each["StringValue"])
    found = details(received(entry))
    assert dict(found.attributes) == attributes
    assert (found.priority, found.reply_to) == (7, "answers")


def test_R34_attributes_that_sqs_can_carry_are_its_own_for_other_consumers() -> None:
    entry, _ = EntryAttributes({"colour": "red", "größe": "7"}, {}).entry(b"a")
    assert entry["MessageAttributes"]["colour"] == {"DataType": "String", "StringValue": "red"}
    assert entry["MessageAttributes"][sqs_form.REST]["StringValue"] == '{"größe":"7"}'


def test_R34_attributes_of_other_producers_are_shown_as_text() -> None:
    noted = {
        "count": {"DataType": "Number", "StringValue": "7"},
        "data": {"DataType": "Binary", "BinaryValue": b"\xff"},
        "kind": {"DataType": "String.custom", "StringValue": "x"},
        sqs_form.REST: {"DataType": "String", "StringValue": "no JSON"},
        sqs_form.PRIORITY: {"DataType": "Number", "StringValue": "no number"},
    }
    found = details({"Body": "a", "MessageAttributes": noted, "Attributes": {}})
    assert dict(found.attributes) == {
        "count": "7",
        "data": "/w==",
        "kind": "x",
        sqs_form.REST: "no JSON",
    }
    assert found.priority == 0


def test_R23_a_body_that_claims_to_be_base64_and_is_not_does_not_decode() -> None:
    noted = {sqs_form.FORM: {"DataType": "String", "StringValue": "base64"}}
    with pytest.raises(SerializationError, match="base64"):
        body_bytes({"Body": "!", "MessageAttributes": noted}, as_json=False)


def test_R34_bytes_that_are_too_large_as_base64_say_so() -> None:
    with pytest.raises(InvalidParameterError, match="as base64") as refused:
        EntryAttributes({}, {}).entry(b"\xff" * 800_000)
    assert refused.value.parameter == "body"
    assert "1,048,576" in str(refused.value)


def test_R21_an_answer_of_text_is_read_as_text_and_as_json() -> None:
    for text in ("plain", "", "\x00"):
        entry, _ = EntryAttributes({}, {sqs_form.FORM: "text"}).entry(text.encode())
        assert body_bytes(received(entry), as_json=False) == text.encode()
        assert wire.msgspec.json.decode(body_bytes(received(entry), as_json=True)) == text
