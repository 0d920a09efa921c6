"""Three agents write to each other over a bus on disk; one of them sets itself a reminder."""

from __future__ import annotations

import sys
from pathlib import Path

from pillarbox.bus import BusProcessor, Envelope, MessageBus


def main(directory: Path) -> list[str]:
    """Run until the report is written; what was said, in order."""
    said: list[str] = []
    with MessageBus.open(directory, "editor", "writer", "checker") as bus:

        async def editor(message: Envelope) -> None:
            said.append(f"editor heard from {message.sender}: {message.payload}")
            if message.sender == "you":
                bus.send(to="writer", sender="editor", payload="write", task_id=message.task_id)
                bus.send(to="editor", sender="editor", payload="how is it going?", delay_ms=20)
            elif message.sender == "checker":
                processor.stop()

        def writer(message: Envelope) -> None:  # a plain function: it runs in a thread
            said.append(f"writer works on {message.task_id}")
            bus.send(to="checker", sender="writer", payload="a draft", task_id=message.task_id)

        async def checker(message: Envelope) -> None:
            said.append(f"checker reads {message.payload}")
            bus.send(
                to="editor",
                sender="checker",
                payload="approved",
                task_id=message.task_id,
                delay_ms=60,
            )

        bus.send(to="editor", sender="you", payload="a report, please", task_id="report-1")
        handlers = {"editor": editor, "writer": writer, "checker": checker}
        processor = BusProcessor(bus, handlers, concurrency=2)
        processor.run()
    return said


if __name__ == "__main__":
    print("\n".join(main(Path(sys.argv[1] if len(sys.argv) > 1 else "./bus"))))
