"""Recovery takes as long as there is to recover, and not the square of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pillarbox import DurableMailbox
from pillarbox.core import journal
from pillarbox.core.queue import Queue, Record, waiting
from pillarbox.mailbox import replay
from pillarbox.mailbox.queue_steps import SLICE

FEW = 2_000
TIMES_MORE = 6
TIMES_LONGER_MAX = 2 * TIMES_MORE  # a square would be 36 times


def seconds_to_replay(count: int) -> float:
    """For messages that were all sent, and redriven to another queue a few at a time."""
    queue, target = Queue("dead"), Queue("orders")
    keys = range(1_000, 1_000 + count)
    entries = [journal.sent_entry(0, Record(key, b"")) for key in keys]
    for at in range(0, count, SLICE):
        details = (target.name, list(keys[at : at + SLICE]))
        entries.append(journal.entry_bytes(journal.REDRIVEN, 0, 0, 5_000, details=details))
    decoded = [journal.decode(entry) for entry in entries]
    started = time.thread_time()
    for entry in decoded:
        journal.replay(queue, entry, b"", lambda _: target)
    took = time.thread_time() - started
    assert (queue.ready, target.ready) == (0, count)
    return took


def times_longer() -> float:
    return min(seconds_to_replay(TIMES_MORE * FEW) / seconds_to_replay(FEW) for _ in range(3))


def test_R31_recovery_is_linear_in_what_was_redriven() -> None:
    assert times_longer() < TIMES_LONGER_MAX


def test_R31_control_looking_through_the_line_for_each_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(queue: Queue, key: int) -> Record | None:
        return (
            {record.key: record for record in waiting(queue)}.get(key)
            if key % 10 == 0
            else (real(queue, key))
        )

    real = journal.lines.find
    monkeypatch.setattr(journal.lines, "find", find)
    assert times_longer() > TIMES_LONGER_MAX


def test_R31_restated_messages_that_are_done_are_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compaction wrote again, and was acknowledged since, is in no queue any more."""
    with DurableMailbox("orders", bytes, path=tmp_path, durability="os") as box:
        box.send_many([b"%d" % number for number in range(300)])
        records = [record for record, _ in box._session.look("ready", None)]
        box._store.compactor._restate(records)
        while messages := box.receive(max_messages=100):
            box.acknowledge_many(messages)
        box._store.compactor._restate(records)
        looks = []
        all_records = replay.all_records
        monkeypatch.setattr(
            replay, "all_records", lambda queues: looks.append(1) or all_records(queues)
        )
        monkeypatch.setattr(box._store.compactor, "take_snapshot", lambda: None)
    with DurableMailbox("orders", bytes, path=tmp_path) as again:
        assert again.approximate_count() == 0
    assert len(looks) == 1
