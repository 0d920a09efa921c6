"""A process that sends, receives and acknowledges until it is killed, and tells what it did.

python -m tests.durable.mailbox_process PATH DURABILITY

S id: a send was confirmed. T id: an acknowledge is tried. A id: it was confirmed.
"""

from __future__ import annotations

import os
import sys
import threading

from pillarbox.mailbox.durable import DurableMailbox


def tell(letter: str, message_id: str) -> None:
    os.write(1, f"{letter} {message_id}\n".encode())


def produce(box: DurableMailbox[bytes], name: int) -> None:
    number = 0
    while True:
        number += 1
        tell("S", box.send(b"%d:%d" % (name, number) + b"." * (number * 7 % 300)))


def consume(box: DurableMailbox[bytes]) -> None:
    while True:
        for message in box.receive(max_messages=3, visibility_timeout=2, wait_time_seconds=1):
            tell("T", message.id)
            if message.acknowledge():
                tell("A", message.id)


def main(path: str, durability: str) -> None:
    options = {"path": path, "durability": durability, "segment_bytes": 1 << 20}
    box = DurableMailbox("box", bytes, **options)  # type: ignore[arg-type]
    for name in range(3):
        threading.Thread(target=produce, args=(box, name), daemon=True).start()
    for _ in range(2):
        threading.Thread(target=consume, args=(box,), daemon=True).start()
    tell("R", "ready")
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
