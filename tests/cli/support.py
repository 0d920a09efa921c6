"""What the tests of the command line share: a store to look at, a way to hurt it, a way to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pillarbox import DeadLetterPolicy
from pillarbox.mailbox.durable import DurableMailbox

SENT = 120


def fill(path: Path, *, leave_open: bool = False) -> list[DurableMailbox[Any]]:
    """A store of several segments, with messages in every state."""
    orders: DurableMailbox[Any] = DurableMailbox(
        "orders", dict, path=path, segment_bytes=16384, dead_letters=DeadLetterPolicy(2)
    )
    notes: DurableMailbox[Any] = DurableMailbox("notes", str, path=path)
    raw: DurableMailbox[Any] = DurableMailbox("raw", bytes, path=path)
    for number in range(SENT):
        attributes = {"shop": "ada"} if number % 4 == 0 else None
        orders.send({"n": number, "tea": "Assam" * 20}, attributes=attributes)
    notes.send("hello\x1b[31m world")
    notes.send("later", delay_seconds=3600)
    raw.send(b"\x00\x01\xff")
    for message in orders.receive(max_messages=5, visibility_timeout=600):
        message.acknowledge()
    for message in orders.receive(max_messages=2, visibility_timeout=600):
        message.reject("bad")
    orders.receive(max_messages=3, visibility_timeout=600)
    boxes = [orders, notes, raw]
    if not leave_open:
        for box in boxes:
            box.close()
    return boxes


def hurt(store: Path, needle: bytes) -> str:
    """Flip one bit of the record that holds `needle`; the name of its file."""
    for file in sorted((store / "log").glob("*.seg")):
        data = bytearray(file.read_bytes())
        place = data.find(needle)
        if place > 0:
            data[place] ^= 1
            file.write_bytes(data)
            return file.name
    raise AssertionError(f"no segment holds {needle!r}")


def pillarbox(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, in a process of its own, not on a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "pillarbox.cli", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
        check=False,
    )


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    """The one document that a command printed."""
    assert done.stderr == ""
    return json.loads(done.stdout)
