"""`send_message` as a tool of language models (R96): schema, execution, and errors as data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pillarbox.bus import MessageBus, SendMessageTool
from pillarbox.testing import FakeClock

SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "minLength": 1},
        "payload": {"type": "object"},
        "delayMs": {"type": "number"},
    },
    "required": ["to", "payload"],
    "additionalProperties": False,
}


def make(**options: Any) -> tuple[SendMessageTool, MessageBus, FakeClock]:
    clock = FakeClock()
    bus = MessageBus("ada", "bob", clock=clock)
    return SendMessageTool(bus, **options), bus, clock


def without_words(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {name: without_words(part) for name, part in schema.items() if name != "description"}


def test_R96_the_schema_is_the_same_in_both_formats() -> None:
    tool, _, _ = make(sender="ada", task_id="t-1")
    assert without_words(tool.parameters) == SCHEMA
    assert set(tool.openai) == {"type", "function"}
    assert tool.openai["type"] == "function"
    assert tool.openai["function"]["parameters"] == tool.parameters
    assert tool.anthropic["input_schema"] == tool.parameters
    assert tool.openai["function"]["name"] == tool.anthropic["name"] == tool.name == "send_message"
    assert all(part["description"] for part in tool.parameters["properties"].values())
    json.dumps([tool.openai, tool.anthropic])


def test_R96_a_tool_that_is_nobodys_asks_for_the_sender_and_takes_a_task() -> None:
    tool, bus, _ = make()
    assert tool.parameters["required"] == ["to", "payload", "from"]
    assert "taskId" in tool.parameters["properties"]
    assert tool.execute({"to": "bob", "payload": {}}) == {"error": "the argument 'from' is missing"}
    sent = tool.execute({"to": "bob", "payload": {"a": 1}, "from": "eve", "taskId": "t-9"})
    got = bus.receive_next("bob")
    assert got is not None
    assert (got.id, got.sender, got.task_id) == (sent["messageId"], "eve", "t-9")


@pytest.mark.parametrize("form", [dict, json.dumps, lambda x: json.dumps(x).encode()])
def test_R96_a_call_sends_as_the_agent_and_for_its_task(form: Any) -> None:
    tool, bus, _ = make(sender="ada", task_id="t-1")
    sent = tool.execute(form({"to": "bob", "payload": {"do": "tests"}}))
    assert list(sent) == ["messageId"]
    got = bus.receive_next("bob")
    assert got is not None
    assert got.to_json() == {
        "id": sent["messageId"],
        "createdAt": "2027-01-15T08:00:00Z",
        "to": "bob",
        "from": "ada",
        "payload": {"do": "tests"},
        "taskId": "t-1",
    }


def test_R96_a_delayed_call_answers_with_the_time() -> None:
    tool, bus, clock = make(sender="ada")
    for delay in (1_500, "1500", 1500.0):
        sent = tool.execute({"to": "bob", "payload": {}, "delayMs": delay})
        assert sent["scheduledDeliveryTime"] == "2027-01-15T08:00:01.500000Z"
    assert bus.delayed_count() == 3
    for delay in (0, -5, None, "soon", float("nan")):
        assert list(tool.execute({"to": "bob", "payload": {}, "delayMs": delay})) == ["messageId"]
    clock.advance(1.5)
    assert len(bus.drain("bob")) == 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"to": "eve", "payload": {}}, "recipient 'eve' is not registered"),
        ({"payload": {}}, "'to' is missing"),
        ({"to": None, "payload": {}}, "'to' is missing"),
        ({"to": "bob"}, "'payload' is missing"),
        ({"to": "", "payload": {}}, "'to' must be a non-empty string, not an empty string"),
        ({"to": ["bob"], "payload": {}}, "'to' must be a non-empty string, not an array"),
        ({"to": "bob", "payload": "hi"}, "'payload' must be a JSON object, not a string"),
        ({"to": "bob", "payload": {}, "cc": "eve"}, "there is no argument 'cc'"),
        ({"to": "bob", "payload": {}, "from": "bob"}, "'from' is fixed to 'ada': leave it out"),
        ({"to": "bob", "payload": {}, "taskId": 7}, "'taskId' must be a non-empty string"),
        ({"to": "bob", "payload": {}, "delayMs": float("inf")}, "delay_ms must be a number"),
        ({"to": "bob", "payload": {}, "delayMs": 10**400}, "before the year 10000"),
        ({"to": "bob", "payload": {"x": float("nan")}}, "can't be sent"),
        ({"to": "bob", "payload": {"x": "y" * (1 << 20)}}, "1,048,576 bytes"),
        ([], "must be a JSON object, not an array"),
        (None, "must be a JSON object, not null"),
        ("{'to': 'bob'}", "the arguments are not JSON"),
        ("[" * 100_000, "the arguments are not JSON"),
        (b"\xff", "the arguments are not JSON"),
    ],
)
def test_R96_a_wrong_call_answers_with_an_error_and_sends_nothing(
    arguments: Any, words: str
) -> None:
    tool, bus, _ = make(sender="ada")
    answer = tool.execute(arguments)
    assert list(answer) == ["error"]
    assert words in answer["error"]
    assert (bus.delayed_count(), bus.drain()) == (0, [])


def test_R96_the_sender_may_be_said_again_and_a_closed_bus_is_an_error_too() -> None:
    tool, bus, _ = make(sender="ada")
    assert "messageId" in tool.execute({"to": "bob", "payload": {}, "from": "ada"})
    bus.close()
    assert "closed" in tool.execute({"to": "bob", "payload": {}})["error"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
calls = st.one_of(
    st.fixed_dictionaries(
        {"to": st.sampled_from(("ada", "bob")) | values, "payload": st.just({}) | values},
        optional={"delayMs": values, "from": values, "taskId": values, "other": values},
    ),
    values,
    st.text(),
    st.binary(),
)


@settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(calls)
def test_R96_whatever_a_model_calls_it_with_the_answer_is_json(arguments: Any) -> None:
    tool, bus, _ = make(sender="ada")
    answer = tool.execute(arguments)
    json.dumps(answer)
    stored = bus.delayed_count() + len(bus.drain())
    assert ("messageId" in answer, "error" in answer) == (stored == 1, stored == 0)
