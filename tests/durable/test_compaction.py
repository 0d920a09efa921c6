"""Compaction keeps what lives, drops what does not, and nobody has to wait for it."""

from __future__ import annotations

import threading

import pytest

from pillarbox.log import Retention
from pillarbox.mailbox import compactor
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.durable_session import bytes_of
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.disk import SimDisk
from tests.durable.world import PATH, SEGMENT_BYTES, ids_of, open_store, state_of


def churned(disk: SimDisk, **options: object) -> DurableMailbox[bytes]:
    """A mailbox of 600 messages of which every tenth is left."""
    box = DurableMailbox(
        "box",
        bytes,
        path=PATH,
        disk=disk,
        clock=FakeClock(),
        segment_bytes=SEGMENT_BYTES,
        **options,  # type: ignore[arg-type]
    )
    box.send_many([b"%d" % i + b"." * 1000 for i in range(600)])
    messages = box.receive(max_messages=600, visibility_timeout=1000)
    box.acknowledge_many([message for i, message in enumerate(messages) if i % 10])
    return box


def test_R73_compaction_leaves_little_more_than_what_lives() -> None:
    box = churned(SimDisk())
    store = box._store
    before = ids_of(store)
    store.compactor.compact()
    live = sum(bytes_of(lease.record.body) for lease in box._session.queue.leases)
    assert store.log.size_bytes <= 1.3 * live + SEGMENT_BYTES
    assert ids_of(store) == before


def test_R73_a_compacted_store_comes_back_whole_after_a_kill() -> None:
    disk = SimDisk()
    box = churned(disk)
    box._store.compactor.compact()
    box.send(b"after")
    box._store.log.flush()
    copy = open_store(disk.kill(), FakeClock())
    assert state_of(copy) == state_of(box._store)
    assert ids_of(copy) == ids_of(box._store)


def test_R74_history_is_kept_as_long_as_asked() -> None:
    box = churned(SimDisk(), history=Retention())
    box._store.compactor.compact()
    assert box._store.log.first_index == 0


def test_R73_a_named_tailer_holds_the_history_back() -> None:
    box = churned(SimDisk())
    tailer = box._store.log.tailer("report")
    tailer.save()
    box._store.compactor.compact()
    assert box._store.log.first_index == 0
    box._store.log.delete_tailer("report")
    box._store.compactor.compact()
    assert box._store.log.first_index > 0


def test_R31_compaction_under_load_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor, "_ENTRIES_BETWEEN", 200)
    disk = SimDisk()
    box = churned(disk)
    clock = box._store.clock
    done: list[bytes] = []
    stop = threading.Event()

    def consume() -> None:
        while not stop.is_set():
            for message in box.receive(max_messages=7):
                done.append(message.body)
                assert message.acknowledge()

    consumer = threading.Thread(target=consume)
    consumer.start()
    sent = [b"%d" % i + b"." * (i % 900) for i in range(1500)]
    for body in sent:
        box.send(body)
    while len(done) < len(sent):
        assert consumer.is_alive()
        stop.wait(0.01)
    stop.set()
    consumer.join()
    assert done == sent
    box._store.compactor.stop()
    assert box._store.compactor.snapshot_index > 0
    box._store.log.flush()
    monkeypatch.setattr(compactor, "_ENTRIES_BETWEEN", 1_000_000)  # nothing is moved on opening
    assert state_of(open_store(disk.kill(), clock)) == state_of(box._store)  # type: ignore[arg-type]


def test_R73_what_was_replayed_counts_so_that_many_short_lives_stay_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compactor, "_ENTRIES_BETWEEN", 200)
    disk, clock, replayed = SimDisk(), FakeClock(), []
    for _ in range(10):
        box = DurableMailbox("box", bytes, path=PATH, disk=disk, clock=clock)
        store = box._store
        replayed.append(store.log.next_index - store.compactor.snapshot_index)
        store.compactor.stop()  # what was due when it was opened is done
        for _ in range(100):  # too few for a snapshot
            box.send(b"x")
        store.log.flush()
        disk = disk.kill()
    assert max(replayed) < 400
