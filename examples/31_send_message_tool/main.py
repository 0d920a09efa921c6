"""A language model with the `send_message` tool; a script stands in for the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pillarbox.bus import MessageBus, SendMessageTool


def model(tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Stands in for a real model: asks for tool calls and reads their results."""
    assert tools[0]["name"] == "send_message"
    answer = yield {"to": "qa", "payload": {"build": 7}}
    assert "not registered" in answer["error"]  # it reads the error and corrects itself
    answer = yield {"to": "tester", "payload": {"build": 7}}
    assert "messageId" in answer
    yield {"to": "tester", "payload": {"remind": "results?"}, "delayMs": 3_600_000}


def main() -> list[str]:
    bus = MessageBus("tester", "planner")
    tool = SendMessageTool(bus, sender="planner", task_id="build-7")
    turns = model([tool.anthropic])
    lines = []
    call = next(turns)
    while True:
        answer = tool.execute(call)
        lines.append(f"{json.dumps(call)} -> {', '.join(answer)}")
        try:
            call = turns.send(answer)
        except StopIteration:
            break
    first = bus.receive_next("tester")
    assert first is not None
    lines.append(f"tester got {first.payload} for task {first.task_id} from {first.sender}")
    lines.append(f"delayed: {bus.delayed_count()}")
    bus.force_deliver_all_delayed()
    return lines


if __name__ == "__main__":
    print("\n".join(main()))
