"""`pillarbox bench`: measures the throughput of mailboxes on this machine in a few seconds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from pillarbox import open_mailbox
from pillarbox.cli import output
from pillarbox.cli.options import Json, app, check_seconds
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.url import without_password

_BATCH = 100
_BODY = "x" * 200


class Result(NamedTuple):
    """Full cycles (send, receive, acknowledge) per second."""

    mailbox: str
    one_at_a_time: float
    in_batches: float


@app.command(help_epilogue="Example: pillarbox bench redis://localhost/bench")
def bench(
    url: Annotated[
        str | None, Parameter(help="URL of an empty mailbox to measure as well.")
    ] = None,
    /,
    *,
    seconds: Annotated[float, Parameter(help="Seconds per measurement.")] = 1,
    data: Annotated[str | None, Parameter(help="Directory on the disk to measure.")] = None,
    json: Json = False,
) -> int:
    """Measure the throughput of mailboxes in memory, on disk and at a URL.

    One cycle is send, receive and acknowledge. On disk, each durability level is measured. Bodies
    have 200 characters, batches 100 messages.
    """
    check_seconds("seconds", seconds)
    results = []
    with (
        tempfile.TemporaryDirectory(dir=data, prefix="pillarbox-bench-") as folder,
        output.progress("measuring") as advance,
        ExitStack() as stack,
    ):
        boxes: list[tuple[str, Mailbox[str]]] = [("memory", open_mailbox("memory:bench", str))]
        for level in ("memory", "os", "fsync"):
            store = DurableMailbox("bench", str, path=f"{folder}/{level}", durability=level)
            boxes.append((f"disk, {level}", stack.enter_context(store)))
        if url is not None:
            boxes.append((without_password(url), stack.enter_context(_open_empty(url))))
        for number, (name, box) in enumerate(boxes):
            advance(number, len(boxes))
            results.append(_measured(name, box, seconds))
    right = ("one at a time", f"in batches of {_BATCH}")
    rows = [(x.mailbox, f"{x.one_at_a_time:,.0f}/s", f"{x.in_batches:,.0f}/s") for x in results]
    shown = output.table(("mailbox", *right), rows, right=right)
    return output.show([result._asdict() for result in results], shown, json=json)


def _open_empty(url: str) -> Mailbox[str]:
    """Open a mailbox; raise if it has messages, which the benchmark would delete."""
    box = open_mailbox(url, str)
    if size := box.approximate_count():
        box.close()
        messages = output.count(size, "message")
        shown = without_password(url)
        raise MailboxError(f"{shown} contains {messages}; give the URL of an empty mailbox")
    return box


def _measured(name: str, box: Mailbox[str], seconds: float) -> Result:
    def one() -> int:
        box.send(_BODY)
        for message in box.receive():
            message.acknowledge()
        return 1

    def many() -> int:
        box.send_many([_BODY] * _BATCH)
        return sum(box.acknowledge_many(box.receive(max_messages=_BATCH)))

    return Result(name, _rate(one, seconds), _rate(many, seconds))


def _rate(cycle: Callable[[], int], seconds: float) -> float:
    cycle()
    done, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        done += cycle()
    return done / passed
