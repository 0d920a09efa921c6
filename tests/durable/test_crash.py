"""Power loss, failing disks and full disks under a store."""

from __future__ import annotations

import contextlib
import errno
import random
from typing import Any

import pytest

from pillarbox.core.errors import MailboxClosedError, MailboxFullError, MailboxStorageError
from pillarbox.log.segment_writer import SegmentWriter
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.disk import SimDisk
from tests.durable.world import PATH, World, ids_of, open_store

CI_STATES = 3_000


def check(world: World, disk: SimDisk) -> None:
    """What a power loss left holds all that was confirmed, and nothing that was taken back."""
    store = open_store(disk, world.clock)
    found = ids_of(store)
    lost = {i: b for i, b in world.sent.items() if i not in world.gone and found.get(i) != b}
    assert not lost, f"{len(lost)} confirmed messages are lost or changed"
    revived = world.gone & found.keys()
    assert not revived, f"{len(revived)} messages came back from the dead"
    ready = {
        store.message_id(record.key)
        for session in store.sessions.values()
        for record, _ in session.look("ready", None)
    }
    early = [i for i in ready if world.not_before.get(i, 0) > world.clock.now()]
    assert not early, "a delay was cut short"
    store.log.close()


def crash_states(first_seed: int, states: int, **options: Any) -> None:
    done = 0
    seed = first_seed
    while done < states:
        world = World(seed, **options)
        choose = random.Random(seed).randrange
        for _ in range(60):
            world.step()
            if world.chance.random() < 0.05:
                world.store.compactor.compact()
            if world.chance.random() < 0.5:
                check(world, world.disk.crash(choose))
                done += 1
        seed += 1


def test_R58_power_loss_at_any_moment_loses_nothing_confirmed() -> None:
    crash_states(1, CI_STATES)


@pytest.mark.soak
def test_R58_power_loss_at_very_many_moments_loses_nothing_confirmed() -> None:
    crash_states(1_000, 200_000)


def test_R58_without_syncs_power_loss_loses_messages() -> None:
    """Control: at a level that does not sync, the very same check fails."""
    with pytest.raises(AssertionError, match="confirmed messages are lost"):
        crash_states(1, CI_STATES, durability="os")


def fill(box: DurableMailbox[bytes], body: bytes, confirmed: list[str]) -> None:
    """Send until it fails."""
    while True:
        confirmed.append(box.send(body))


@pytest.mark.parametrize("call", range(1, 40))
def test_R58_a_failed_sync_stops_the_store_and_nothing_after_it_is_confirmed(call: int) -> None:
    syncs = 0

    def fail(operation: str, path: str) -> None:
        nonlocal syncs
        if operation == "fdatasync":
            syncs += 1
            if syncs >= call:
                raise OSError(errno.EIO, "the disk is broken")

    disk = SimDisk()
    disk.before = fail
    boxes: list[DurableMailbox[bytes]] = []
    confirmed: list[str] = []

    def open_and_fill() -> None:
        boxes.append(DurableMailbox("box", bytes, path=PATH, disk=disk, clock=FakeClock()))
        fill(boxes[0], b"a", confirmed)

    with pytest.raises(MailboxStorageError):
        open_and_fill()
    disk.before = lambda *_: None
    for box in boxes:
        with pytest.raises(MailboxStorageError, match="read-only"):
            box.send(b"b")
    store = open_store(disk.crash(lambda _: 0), FakeClock())
    assert set(confirmed) <= ids_of(store).keys()


def test_R58_control_a_store_that_ignores_failed_syncs_loses_what_it_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimDisk()
    box = DurableMailbox("box", bytes, path=PATH, disk=disk, clock=FakeClock())

    def fail(operation: str, path: str) -> None:
        if operation == "fdatasync":
            raise OSError(errno.EIO, "the disk is broken")

    def ignore(self: SegmentWriter) -> None:
        with contextlib.suppress(OSError):
            original(self)

    original = SegmentWriter.sync
    monkeypatch.setattr(SegmentWriter, "sync", ignore)
    disk.before = fail
    confirmed = {box.send(b"a") for _ in range(5)}
    disk.before = lambda *_: None
    store = open_store(disk.crash(lambda _: 0), FakeClock())
    assert confirmed - ids_of(store).keys() == confirmed


def test_R22_a_full_disk_refuses_messages_lets_go_of_others_and_recovers() -> None:
    disk = SimDisk(capacity_bytes=500_000)
    box = DurableMailbox("box", bytes, path=PATH, disk=disk, clock=FakeClock(), segment_bytes=65536)
    sent: list[str] = []
    with pytest.raises(MailboxFullError, match="free some disk space"):
        fill(box, b"." * 1000, sent)
    assert box.approximate_count() == len(sent) > 100
    taken = box.receive(max_messages=20)
    assert box.acknowledge_many(taken) == [True] * 20
    assert box.approximate_count() == len(sent) - 20
    with pytest.raises(MailboxFullError):
        box.send(b"." * 1000)
    disk.capacity_bytes = 10_000_000
    box.send(b"." * 1000)
    assert box.approximate_count() == len(sent) - 19


def test_R22_control_without_room_kept_back_a_full_disk_lets_go_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pillarbox.log.segment_writer.urgent_bytes", lambda _: 0)
    monkeypatch.setattr("pillarbox.log.spare_files.Reserve.fill", lambda _: None)
    disk = SimDisk(capacity_bytes=500_000)
    box = DurableMailbox("box", bytes, path=PATH, disk=disk, clock=FakeClock(), segment_bytes=65536)
    for body in (b"." * 1000, b"."):
        with pytest.raises(MailboxFullError):
            fill(box, body, [])
    with pytest.raises(MailboxFullError):
        box.acknowledge_many(box.receive(max_messages=20))


def test_R24_a_store_that_was_closed_says_so() -> None:
    disk = SimDisk()
    box = DurableMailbox("box", bytes, path=PATH, disk=disk, clock=FakeClock())
    box.send(b"a")
    (message,) = box.receive()
    box.close()
    with pytest.raises(MailboxClosedError):
        box.send(b"b")
    with pytest.raises(MailboxClosedError, match="open it again"):
        message.acknowledge()
