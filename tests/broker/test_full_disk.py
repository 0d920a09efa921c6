"""R113: a broker whose disk is full says so, lets its queues be emptied, and goes on by itself."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from pillarbox.testing.broker import running_broker
from tests.broker.support import Client, Refused
from tests.durable.small_disk import small_disk


def test_R113_a_full_broker_says_so_and_is_emptied(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", 12) as place,
        running_broker(f"{place}/store", "os") as url,
        Client(url) as sqs,
    ):
        queue = sqs.create()
        assert sqs.raw("GET", "/readyz")[0] == 200
        sent = 0
        with contextlib.suppress(Refused):
            while True:
                sqs.send(queue, f"{sent} " + "." * 30_000)
                sent += 1
        with pytest.raises(Refused) as refused:
            sqs.send(queue, "." * 30_000)
        assert (refused.value.code, sent > 100) == ("OverLimit", True)
        status, _, said = sqs.raw("GET", "/readyz")
        assert (status, b"received and deleted" in said) == (200, True)  # as ReceiveMessage says

        seen = []
        while messages := sqs.receive(queue):
            for message in messages:
                seen.append(int(message["Body"].split()[0]))
                sqs.delete(queue, message)
        assert seen == list(range(sent))
        while sqs.raw("GET", "/readyz")[2] != b"ok\n":
            os.sched_yield()
        for _ in range(sent // 2):
            _send_at_last(sqs, queue)


def _send_at_last(sqs: Client, queue: str) -> None:
    """What was let go of is reclaimed in the background: a refusal does not last."""
    while True:
        try:
            sqs.send(queue, "." * 30_000)
        except Refused:
            continue
        return
