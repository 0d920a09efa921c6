"""R113: a full store can be emptied to its last message, and then takes sends again."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pillarbox.core.errors import MailboxFullError
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.protocol import DeadLetterPolicy
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.disk import SimDisk
from tests.durable.small_disk import small_disk
from tests.durable.world import PATH

Mount = Callable[[int], Path]
Box = DurableMailbox[bytes]

FILLER = """
import os, sys
from pillarbox import MailboxFullError
from pillarbox.mailbox.durable import DurableMailbox
path, size, end = sys.argv[1], int(sys.argv[2]), sys.argv[3]
box = DurableMailbox("box", bytes, path=path, durability="os")
sent = 0
try:
    while True:
        box.send(b"%d " % sent + bytes(size))
        sent += 1
except MailboxFullError:
    print(sent, flush=True)
if end == "kill":
    os.kill(os.getpid(), 9)
box.close()
"""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Make a real file system of so many MiB."""
    with contextlib.ExitStack() as disks:
        yield lambda size_mb: disks.enter_context(small_disk(tmp_path / "disk", size_mb))


def fill(box: Box, size: int, first: int = 0) -> int:
    """Send until the disk is full; how many went in."""
    sent = 0
    with contextlib.suppress(MailboxFullError):
        while True:
            box.send(b"%d " % (first + sent) + bytes(size))
            sent += 1
    return sent


def fill_the_rest(disk: Path) -> None:
    """Another program takes every block that is free."""
    with open(disk / "foreign", "wb", buffering=0) as foreign, contextlib.suppress(OSError):
        while foreign.write(bytes(4096)):
            pass


def drain(box: Box) -> list[int]:
    """The numbers of all messages, which are acknowledged."""
    numbers = []
    while batch := box.receive(max_messages=10):
        numbers += [int(message.body.split(b" ")[0]) for message in batch]
        assert all(message.acknowledge() for message in batch)
    return numbers


SIZES = [(12, 100), (12, 30_000), (12, 1_000_000), (60, 30_000)]


@pytest.mark.parametrize(("disk_mb", "size"), SIZES)
def test_R113_a_full_store_is_emptied_and_takes_sends_again(
    mount: Mount, disk_mb: int, size: int
) -> None:
    place = str(mount(disk_mb) / "store")
    box: Box = DurableMailbox("box", bytes, path=place, durability="os")
    sent = fill(box, size)
    assert drain(box) == list(range(sent))
    box.send(b"0 again")
    again = 1 + fill(box, size, 1)
    assert again > sent // 2, "most of the disk is of use again"
    assert drain(box) == list(range(again))
    box.close()
    with DurableMailbox[bytes]("box", bytes, path=place) as box:
        assert drain(box) == []


@pytest.mark.parametrize("end", ["kill", "close"])
@pytest.mark.parametrize(("disk_mb", "size"), SIZES)
def test_R113_a_fresh_process_empties_a_full_store(
    mount: Mount, disk_mb: int, size: int, end: str
) -> None:
    place = str(mount(disk_mb) / "store")
    command = [sys.executable, "-c", FILLER, place, str(size), end]
    sent = int(subprocess.run(command, capture_output=True, check=False).stdout)
    with DurableMailbox[bytes]("box", bytes, path=place, durability="os") as box:
        assert drain(box) == list(range(sent))
        box.send(b"0 again")
        assert fill(box, size) > sent // 2


def test_R113_compact_works_on_a_full_disk(mount: Mount) -> None:
    disk = mount(12)
    place = str(disk / "store")
    command = [sys.executable, "-c", FILLER, place, "100", "close"]
    sent = int(subprocess.run(command, capture_output=True, check=False).stdout)
    fill_the_rest(disk)
    compact = [sys.executable, "-m", "pillarbox.cli", "log", "compact", place]
    done = subprocess.run(compact, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with DurableMailbox[bytes]("box", bytes, path=place, durability="os") as box:
        assert drain(box) == list(range(sent))


def test_R113_it_can_be_done_in_many_sessions_each_of_which_is_killed(mount: Mount) -> None:
    place = str(mount(12) / "store")
    command = [sys.executable, "-c", FILLER, place, "1000", "kill"]
    sent = int(subprocess.run(command, capture_output=True, check=False).stdout)
    seen: list[int] = []
    while len(seen) < sent:
        parts = [sys.executable, "-c", _PART, place, str(sent // 5 + 1)]
        done = subprocess.run(parts, capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stderr
        seen += map(int, done.stdout.split())
    assert seen == list(range(sent)), "nothing is lost, and nothing comes back"


_PART = """
import os, sys
from pillarbox.mailbox.durable import DurableMailbox
box = DurableMailbox("box", bytes, path=sys.argv[1], durability="os")
left = int(sys.argv[2])
while left and (batch := box.receive()):
    print(int(batch[0].body.split(b" ")[0]), flush=True)
    assert batch[0].acknowledge()
    left -= 1
os.kill(os.getpid(), 9)
"""


def test_R113_another_program_that_fills_the_disk_does_no_harm(mount: Mount) -> None:
    place = mount(12)
    box: Box = DurableMailbox("box", bytes, path=str(place / "store"))
    for number in range(300):
        box.send(b"%d " % number + bytes(1_000))
    fill_the_rest(place)
    assert drain(box) == list(range(300))
    os.unlink(place / "foreign")
    box.send(b"0 again")
    assert not box._store.full
    box.close()


def test_R113_without_a_send_it_notices_that_there_is_room(mount: Mount) -> None:
    place = mount(12)
    box: Box = DurableMailbox("box", bytes, path=str(place / "store"))
    fill_the_rest(place)
    fill(box, 300_000)
    assert box._store.full
    thread = box._store.compactor._thread
    assert thread is not None
    os.unlink(place / "foreign")
    thread.join(30)
    assert not box._store.full
    box.close()


# -- on a simulated disk --------------------------------------------------------------------------


def simulated(capacity_bytes: int) -> tuple[SimDisk, FakeClock]:
    return SimDisk(capacity_bytes=capacity_bytes), FakeClock()


def opened(disk: SimDisk, clock: FakeClock, name: str = "box", **options: object) -> Box:
    return DurableMailbox(name, bytes, path=PATH, disk=disk, clock=clock, **options)  # type: ignore[misc, arg-type]


def killed(disk: SimDisk) -> SimDisk:
    after = disk.kill()
    after.capacity_bytes = disk.capacity_bytes
    return after


def test_R113_a_full_disk_is_no_reason_for_close_to_fail() -> None:
    disk, clock = simulated(2_000_000)
    box = opened(disk, clock)
    sent = fill(box, 10)
    disk.capacity_bytes = disk.used_bytes()
    box.close()
    box = opened(disk, clock)
    assert drain(box) == list(range(sent))


def test_R113_consumers_that_fail_for_ever_do_not_use_the_room_up() -> None:
    disk, clock = simulated(2_000_000)
    box = opened(disk, clock)
    sent = fill(box, 1_000)
    disk.capacity_bytes = disk.used_bytes()
    refused = 0
    for _ in range(60):
        held = box.receive(max_messages=200, visibility_timeout=30)
        assert len(held) == 200
        try:
            box.nack_many(held[:50])
        except MailboxFullError:
            refused += 1
        clock.advance(31)
    assert refused, "so much that it is refused: what is left is for acknowledgements"
    half = {
        int(m.body.split(b" ")[0]) for m in box.receive(max_messages=sent // 2) if m.acknowledge()
    }
    again = opened(killed(disk), clock)
    clock.advance(60)
    rest = drain(again)
    assert sorted([*rest, *half]) == list(range(sent)), "nothing lost, nothing revived"


def test_R113_what_is_asked_for_during_a_compaction_is_done_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, clock = simulated(3_000_000)
    box = opened(disk, clock)
    sent = fill(box, 10)
    compactor = box._store.compactor
    compactor.stop()
    compactor._stopping, compactor._thread = False, None
    compact, done = compactor.compact, []

    def and_meanwhile_all_are_acknowledged(**options: bool) -> None:
        compact(**options)
        if not done:
            done.append(drain(box))
            disk.capacity_bytes *= 2

    monkeypatch.setattr(compactor, "compact", and_meanwhile_all_are_acknowledged)
    with box._store.lock:
        compactor.check(0)
    thread = compactor._thread
    assert thread is not None
    thread.join(30)
    assert (done, compactor.snapshot_index) == ([list(range(sent))], box._store.log.next_index)


@pytest.mark.parametrize("seed", range(4))
def test_R113_in_any_order_and_with_every_kind_of_message(seed: int) -> None:
    chance = random.Random(seed)
    disk, clock = simulated(3_000_000)
    box = opened(disk, clock, segment_bytes=1 << 18)
    sent: set[str] = set()
    with contextlib.suppress(MailboxFullError):
        while True:
            group = chance.choice((None, None, "a", "b"))
            delay, priority = chance.choice((0, 0, 0, 500)), chance.choice((0, 0, 5))
            body = bytes(chance.choice((10, 1_000, 20_000)))
            sent.add(box.send(body, group=group, delay_seconds=delay, priority=priority))
    gone: set[str] = set()
    while len(gone) < len(sent):
        held = box.receive(max_messages=chance.choice((1, 5, 50)), visibility_timeout=20)
        for message in held:
            if chance.random() < 0.8 and message.acknowledge():
                assert message.id not in gone
                gone.add(message.id)
        if chance.random() < 0.05 or not held:
            clock.advance(25)
        if chance.random() < 0.02:
            box._store.compactor.stop()
            disk = killed(disk)
            box = opened(disk, clock)
    clock.advance(1_000)
    assert (gone, box.receive()) == (sent, [])
    box.send(b"again")
    assert fill(box, 1_000) > 1_000


def test_R113_messages_that_die_on_a_full_disk_can_be_let_go_of_as_dead_letters() -> None:
    disk, clock = simulated(2_000_000)
    box = opened(disk, clock, dead_letters=DeadLetterPolicy(2))
    sent = fill(box, 500)
    disk.capacity_bytes = disk.used_bytes()
    for _ in range(2):
        assert len(box.receive(max_messages=sent, visibility_timeout=30)) == sent
        clock.advance(31)
    dead = opened(disk, clock, "box_dlq")
    assert (box.stats().ready, sorted(drain(dead))) == (0, list(range(sent)))
    disk = killed(disk)
    clock.advance(31)
    assert (drain(opened(disk, clock)), drain(opened(disk, clock, "box_dlq"))) == ([], [])


@pytest.mark.parametrize("seed", range(6))
def test_R113_a_power_loss_while_it_is_emptied_loses_and_revives_nothing(seed: int) -> None:
    chance = random.Random(seed)
    disk, clock = simulated(1_500_000)
    box = opened(disk, clock, segment_bytes=1 << 17)
    sent = fill(box, chance.choice((10, 1_000, 20_000)))
    gone: set[int] = set()
    for _ in range(chance.randrange(1, 1 + sent // 10)):
        held = box.receive(max_messages=10)
        gone |= {int(message.body.split(b" ")[0]) for message in held}
        assert box.acknowledge_many(held) == [True] * len(held)
    box._store.compactor.stop()
    after = disk.crash(chance.randrange)
    after.capacity_bytes = max(1_500_000, after.used_bytes())
    clock.advance(60)
    assert sorted([*drain(opened(after, clock)), *gone]) == list(range(sent))


def test_R113_control_without_the_reserve_it_can_not_be_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pillarbox.log.spare_files.Reserve.fill", lambda _: None)
    disk, clock = simulated(3_000_000)
    box = opened(disk, clock)
    fill(box, 10)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(MailboxFullError):
        drain(box)


def test_R113_a_half_written_snapshot_does_not_take_room_for_ever() -> None:
    disk, clock = simulated(2_000_000)
    box = opened(disk, clock)
    box.send(b"a")
    handle = disk.open(f"{PATH}/snapshot.tmp", write=True, create=True)
    disk.allocate(handle, 0, 500_000)
    disk = killed(disk)
    store = DurableStore(PATH, disk=disk, clock=clock)
    assert "snapshot.tmp" not in disk.names(PATH)
    store.close()
