"""`send_message`, a function tool for language models: its schema and its execution.

The result is always a JSON object: the message id, or `{"error": ...}` with advice for the model.
With a fixed sender, a model can't send in another's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pillarbox.bus.bus import MessageBus
from pillarbox.core.errors import MailboxError

_NAME = "send_message"
_DESCRIPTION = (
    "Send a message to another recipient. It is asynchronous: the answer says that the message "
    "was accepted, not what the recipient replies. With delayMs the message is delivered later."
)


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": description}


_PROPERTIES: dict[str, dict[str, Any]] = {
    "to": _text("The recipient of the message."),
    "payload": {"type": "object", "description": "The message, any JSON object."},
    "delayMs": {
        "type": "number",
        "description": "Milliseconds to wait before the message is delivered. Without it, or with "
        "0, it is delivered at once.",
    },
    "from": _text("Who sends the message: your own name."),
    "taskId": _text("The task that the message belongs to, if any."),
}
_REQUIRED = ("to", "payload", "from")


class SendMessageTool:
    """The tool of one agent.

    `sender` and `task_id` are set on all its messages. Without them the model must give `from`,
    and may give `taskId`.

    Examples:
        >>> tool = SendMessageTool(MessageBus("coder"), sender="planner")
        >>> tool.anthropic["name"], tool.openai["type"]
        ('send_message', 'function')
        >>> sorted(tool.execute({"to": "coder", "payload": {"do": "tests"}}))
        ['messageId']
        >>> tool.execute('{"to": "nobody", "payload": {}}')  # doctest: +ELLIPSIS
        {'error': "recipient 'nobody' is not registered...
    """

    name = _NAME

    def __init__(
        self, bus: MessageBus, sender: str | None = None, task_id: str | None = None
    ) -> None:
        self._bus = bus
        given = {"from": sender, "taskId": task_id}
        self._fixed = {name: value for name, value in given.items() if value is not None}

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return {
            "type": "object",
            "properties": {k: v for k, v in _PROPERTIES.items() if k not in self._fixed},
            "required": [name for name in _REQUIRED if name not in self._fixed],
            "additionalProperties": False,
        }

    @property
    def openai(self) -> dict[str, Any]:
        """The definition for `tools` of the OpenAI chat completions API."""
        function = {"name": _NAME, "description": _DESCRIPTION, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @property
    def anthropic(self) -> dict[str, Any]:
        """The definition for `tools` of the Anthropic messages API."""
        return {"name": _NAME, "description": _DESCRIPTION, "input_schema": self.parameters}

    def execute(self, arguments: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
        """Send with a model's arguments (object or JSON text); errors become results."""
        try:
            given = json.loads(arguments) if isinstance(arguments, str | bytes) else arguments
        except (ValueError, RecursionError) as error:
            return {"error": f"the arguments are not JSON: {error}"}
        problem = self._problem(given)
        if problem is not None:
            return {"error": problem}
        given = {**given, **self._fixed}
        try:
            result = self._bus.send(
                to=given["to"],
                sender=given["from"],
                payload=given["payload"],
                task_id=given.get("taskId"),
                delay_ms=given.get("delayMs"),
            )
        except MailboxError as error:
            return {"error": str(error)}
        return result.to_json()

    def _problem(self, given: Any) -> str | None:
        """Return the first error in the arguments, for the model to read; None if there is none."""
        if not isinstance(given, Mapping):
            return f"the arguments must be a JSON object, not {_kind(given)}"
        for name in given:
            if name not in _PROPERTIES:
                names = ", ".join(sorted(_PROPERTIES))
                return f"there is no argument {str(name)[:80]!r}: use {names}"
        for name in _REQUIRED:
            if given.get(name) is None and name not in self._fixed:
                return f"the argument {name!r} is missing"
        for name in ("to", "from", "taskId"):
            value = given.get(name)
            if value is not None and (not isinstance(value, str) or not value):
                return f"{name!r} must be a non-empty string, not {_kind(value)}"
        for name, own in self._fixed.items():
            if given.get(name) not in (None, own):
                return f"{name!r} is fixed to {own!r}: leave it out"
        if not isinstance(given["payload"], Mapping):
            return f"'payload' must be a JSON object, not {_kind(given['payload'])}"
        return None


def _kind(value: Any) -> str:
    """Return the JSON type of a value."""
    kinds = {
        bool: "a boolean",
        dict: "an object",
        float: "a number",
        int: "a number",
        list: "an array",
        str: "a string" if value else "an empty string",
        type(None): "null",
    }
    return kinds.get(type(value), type(value).__name__)
