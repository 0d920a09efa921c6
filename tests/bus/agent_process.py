"""An agent in a process of its own: handles what is on a bus; one message kills it.

Usage: python -m tests.bus.agent_process DIRECTORY. Prints each payload before it is handled.
"""

from __future__ import annotations

import os
import signal
import sys

from pillarbox.bus import BusProcessor, Envelope, MessageBus

DEADLY = 7
COUNT = 12


def main(directory: str) -> None:
    bus = MessageBus.open(directory, "agent")
    if not bus.stats("agent").total and not bus.dead_letters("agent"):
        for number in range(COUNT):
            bus.send(to="agent", sender="me", payload=number, delay_ms=100 * (number % 3))

    def handle(message: Envelope) -> None:
        print(message.payload, flush=True)
        if message.payload == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        if bus.stats("agent").total == 1:  # this one
            processor.stop()

    processor = BusProcessor(bus, handle)
    if not bus.stats("agent").total:
        processor.stop()
    processor.run()
    bus.close()


if __name__ == "__main__":
    main(sys.argv[1])
