"""`move` between any two backends: nothing is lost, and nothing doubled if it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.backup import Moved, move
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.broker import running_broker
from pillarbox.testing.postgres import shared_server as shared_postgres
from pillarbox.testing.redis import shared_server as shared_redis

COUNT = 250


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def url_of(kind: str, stack: ExitStack, folder: Path) -> str:
    """The URL of a new queue on a backend."""
    name = f"move-{os.getpid()}-{os.urandom(4).hex()}"
    match kind:
        case "memory":
            return f"memory:{name}"
        case "file":
            return f"file:{folder / name}/orders"
        case "broker":
            return f"{stack.enter_context(running_broker())}/{name}"
        case "sqs":
            return f"sqs+{stack.enter_context(running_broker())}/{name}"
        case "fifo":
            return f"sqs+{stack.enter_context(running_broker())}/{name}.fifo"
        case "redis":
            return f"{shared_redis().url}/{name}"
        case _:
            return f"{shared_postgres().database()}/{name}"


def opened(url: str, stack: ExitStack) -> Mailbox[Any]:
    return stack.enter_context(open_mailbox(url, bytes, create=True))


PAIRS = [
    ("memory", "file"),
    ("file", "broker"),
    ("broker", "redis"),
    ("redis", "postgres"),
    ("postgres", "memory"),
    ("file", "fifo"),
    ("sqs", "broker"),
    ("fifo", "sqs"),
]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=map("-to-".join, PAIRS))
def test_R12_messages_move_whole_and_in_order(
    source: str, target: str, stack: ExitStack, tmp_path: Path
) -> None:
    old = opened(url_of(source, stack, tmp_path), stack)
    new = opened(url_of(target, stack, tmp_path), stack)
    for n in range(COUNT):
        old.send(
            b"\xff order %d" % n, attributes={"customer": f"c{n % 3}"}, priority=7 if n < 5 else 0
        )
    seen: list[tuple[int, int]] = []

    moved = move(old, new, progress=lambda done, total: seen.append((done, total)))

    assert moved == Moved(COUNT, deduplicated=target != "sqs")
    assert seen[-1] == (COUNT, COUNT)
    assert old.stats().total == 0
    got = [message for _ in range(COUNT // 10) for message in new.receive(max_messages=10)]
    assert [message.body for message in got] == [b"\xff order %d" % n for n in range(COUNT)]
    assert all(message.attributes["customer"] == f"c{n % 3}" for n, message in enumerate(got))
    if target != "sqs":
        assert [message.priority for message in got[:6]] == [7, 7, 7, 7, 7, 0]


def test_R16_groups_and_reply_addresses_move_too(stack: ExitStack, tmp_path: Path) -> None:
    old = opened(url_of("file", stack, tmp_path), stack)
    new = opened(url_of("broker", stack, tmp_path), stack)
    for n in range(4):
        old.send(b"%d" % n, group=f"g{n % 2}", reply_to="answers")
    assert move(old, new).messages == 4
    got = new.receive(max_messages=10)
    assert [(message.group, message.body) for message in got] == [
        ("g0", b"0"), ("g0", b"2"), ("g1", b"1"), ("g1", b"3"),
    ]  # fmt: skip
    assert {message.reply_to for message in got} == {"answers"}


def test_R12_a_limit_is_kept(stack: ExitStack, tmp_path: Path) -> None:
    old = opened(url_of("memory", stack, tmp_path), stack)
    new = opened(url_of("memory", stack, tmp_path), stack)
    old.send_many([b"x"] * 150)
    assert move(old, new, limit=120).messages == 120
    assert (old.stats().ready, new.stats().ready) == (30, 120)


# -- killed ------------------------------------------------------------------------------------

MOVER = """
import os, signal, sys
from pillarbox.backup import moving
from pillarbox.cli import run
source, target, kill_after, deduplicates = sys.argv[1:]
moving.LEASE_SECONDS = 1
moving.BATCH = 20
batches = 0
send = moving._Sender.send


def send_then_die(self, messages):
    global batches
    if deduplicates == "no":
        self.deduplicates = False
    send(self, messages)
    batches += 1
    if batches == int(kill_after):
        os.kill(os.getpid(), signal.SIGKILL)  # sent, and not acknowledged


moving._Sender.send = send_then_die
sys.exit(run(["move", source, target, "--create", "--json"]))
"""


def _moved_with_kills(source: str, target: str, deduplicates: str, left: Callable[[], int]) -> None:
    for kill_after in ("1", "3", "2", "0"):
        while True:
            ran = subprocess.run(
                [sys.executable, "-c", MOVER, source, target, kill_after, deduplicates],
                capture_output=True, text=True, check=False, timeout=100,
            )  # fmt: skip
            if ran.returncode == -signal.SIGKILL:
                break  # and what it held comes back when its lease ends
            assert ran.returncode == 0, ran.stderr
            json.loads(ran.stdout)
            if left() == 0:
                return


@pytest.mark.parametrize("deduplicates", ["yes", "no"])
def test_R12_a_move_that_is_killed_and_run_again_loses_and_doubles_nothing(
    deduplicates: str, stack: ExitStack
) -> None:
    url = stack.enter_context(running_broker())
    old, new = opened(f"{url}/old", stack), opened(f"{url}/new", stack)
    old.send_many([b"%d" % n for n in range(COUNT)])

    _moved_with_kills(f"{url}/old", f"{url}/new", deduplicates, lambda: old.stats().total)

    got = [message.body for message in new.receive(max_messages=10_000)]
    assert set(got) == {b"%d" % n for n in range(COUNT)}
    if deduplicates == "yes":
        assert len(got) == COUNT
    else:  # the control: three batches were sent twice
        assert len(got) == COUNT + 60


class _Counting:
    """A mailbox that counts what it is asked for."""

    def __init__(self, box: Mailbox[Any]) -> None:
        self._box, self.calls = box, [0, 0]

    def send(self, body: bytes, **options: Any) -> str:
        self.calls[0] += 1
        return self._box.send(body, **options)

    def send_many(self, bodies: list[bytes], **options: Any) -> list[str]:
        self.calls[1] += 1
        return self._box.send_many(bodies, **options)


def test_R12_a_target_that_does_not_deduplicate_gets_batches(
    stack: ExitStack, tmp_path: Path
) -> None:
    """Messages that differ in more than their bodies are not in one batch."""
    old = opened(url_of("memory", stack, tmp_path), stack)
    new = opened(url_of("sqs", stack, tmp_path), stack)
    old.send_many([b"%d" % n for n in range(150)])
    old.send_many([b"%d" % n for n in range(150, COUNT)], attributes={"colour": "red"})
    target: Any = _Counting(new)

    assert move(old, target) == Moved(COUNT, deduplicated=False)

    assert target.calls == [1, 4]  # the first send was refused; 100, 50, 50 and 50 messages
    got = [message for _ in range(COUNT // 10) for message in new.receive(max_messages=10)]
    assert [message.body for message in got] == [b"%d" % n for n in range(COUNT)]
    assert sum(message.attributes.get("colour") == "red" for message in got) == 100
