"""What the tests of the command line share: a store to look at, a way to hurt it, a way to run."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pillarbox import DeadLetterPolicy
from pillarbox.cli import run
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


class Done(NamedTuple):
    """What a command answered."""

    returncode: int
    stdout: str
    stderr: str


def pillarbox(*words: str | Path) -> Done:
    """Run a command in this process, not on a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(word) for word in words])
    return Done(code, out.getvalue(), err.getvalue())


def pillarbox_process(*words: str | Path, **environment: str) -> Done:
    """Run a command as a user would, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pillarbox.cli", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def on_a_terminal(*words: str | Path, columns: int = 80, **environment: str) -> str:
    """What a command writes to a terminal of this width."""
    mine, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "pillarbox.cli", *map(str, words)]
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    env = plain | {"TERM": "xterm-256color"} | environment
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env):
        os.close(its)
        shown = b"".join(_until_closed(mine))
    os.close(mine)
    return shown.decode()


def _until_closed(handle: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # how Linux says that nobody has the other end any more
        while piece := os.read(handle, 65536):
            yield piece


def as_json(done: Done) -> Any:
    """The one document that a command printed."""
    assert done.stderr == ""
    return json.loads(done.stdout)
