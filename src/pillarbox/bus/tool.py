"""`send_message`, a function tool for language models: its schema, and who executes it.

Whatever a model calls it with, the answer is a JSON object: what was sent, or `{"error": ...}`
in words that tell the model what to do instead. A model can't write in another's name.
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


class SendMessageTool:
    """The tool of one agent.

    `sender` is whom its messages are from, `task_id` the task they belong to. Without them the
    model itself must give `from`, and may give `taskId`.

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
        self._sender = sender
        self._task_id = task_id

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        properties: dict[str, Any] = {
            "to": {"type": "string", "minLength": 1, "description": "Who shall get the message."},
            "payload": {"type": "object", "description": "The message itself, any JSON object."},
            "delayMs": {
                "type": "number",
                "description": (
                    "Milliseconds to wait before the message is delivered. Without it, or with 0, "
                    "it is delivered at once."
                ),
            },
        }
        required = ["to", "payload"]
        if self._sender is None:
            properties["from"] = {
                "type": "string",
                "minLength": 1,
                "description": "Who sends the message: your own name.",
            }
            required.append("from")
        if self._task_id is None:
            properties["taskId"] = {
                "type": "string",
                "minLength": 1,
                "description": "The task that the message belongs to, if there is one.",
            }
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    @property
    def openai(self) -> dict[str, Any]:
        """For `tools` of OpenAI's chat completions, and of those who follow their format."""
        function = {"name": _NAME, "description": _DESCRIPTION, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @property
    def anthropic(self) -> dict[str, Any]:
        """For `tools` of Anthropic's messages."""
        return {"name": _NAME, "description": _DESCRIPTION, "input_schema": self.parameters}

    def execute(self, arguments: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
        """Send what a model asks for; its arguments may be a JSON text. Never raises for them."""
        try:
            given = json.loads(arguments) if isinstance(arguments, str | bytes) else arguments
        except (ValueError, RecursionError) as error:
            return {"error": f"the arguments are not JSON: {error}"}
        wrong = self._wrong(given)
        if wrong is not None:
            return {"error": wrong}
        sender, task_id = self._sender or given["from"], self._task_id or given.get("taskId")
        try:
            result = self._bus.send(
                to=given["to"],
                sender=sender,
                payload=given["payload"],
                task_id=task_id,
                delay_ms=given.get("delayMs"),
            )
        except MailboxError as error:
            return {"error": str(error)}
        return result.to_json()

    def _wrong(self, given: Any) -> str | None:
        """What is wrong with the arguments, for the model to read; None if nothing is."""
        if not isinstance(given, Mapping):
            return f"the arguments must be a JSON object, not {_kind(given)}"
        allowed = self.parameters["properties"].keys() | {"from", "taskId"}
        for name in given:
            if name not in allowed:
                return f"there is no argument {str(name)[:80]!r}: use {', '.join(sorted(allowed))}"
        for name in self.parameters["required"]:
            if given.get(name) is None:
                return f"the argument {name!r} is missing"
        for name in ("to", "from", "taskId"):
            value = given.get(name)
            if value is not None and (not isinstance(value, str) or not value):
                return f"{name!r} must be a text that is not empty, not {_kind(value)}"
        for name, own in (("from", self._sender), ("taskId", self._task_id)):
            if own is not None and given.get(name) not in (None, own):
                return f"{name!r} is {own!r} for you: leave it out"
        if not isinstance(given["payload"], Mapping):
            return f"'payload' must be a JSON object, not {_kind(given['payload'])}"
        return None


def _kind(value: Any) -> str:
    """What a JSON value is, in JSON's words."""
    kinds = {
        bool: "a boolean",
        dict: "an object",
        float: "a number",
        int: "a number",
        list: "a list",
        str: "a text" if value else "an empty text",
        type(None): "null",
    }
    return kinds.get(type(value), type(value).__name__)
