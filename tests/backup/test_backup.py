"""Backups of stores and brokers in use: nothing confirmed is missing, nothing deleted is back."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pillarbox import DurableMailbox, open_mailbox
from pillarbox.backup import BackupError, BrokerFiles, StoreFiles, backup, copying
from pillarbox.core.errors import MailboxError, MailboxStorageError
from pillarbox.mailbox import compactor
from pillarbox.mailbox.broker.wire import StoreListing
from pillarbox.testing.broker import running_broker
from tests.backup.load import Load, bodies_in, careless_copy, moments, wrong

SEGMENT_BYTES = 64 << 10


@pytest.fixture(autouse=True)
def _busy_compactor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are taken and segments dropped all the time, rather than now and then."""
    monkeypatch.setattr(compactor, "_ENTRIES_BETWEEN", 400)


def a_store(path: Path) -> DurableMailbox[str]:
    return DurableMailbox("orders", str, path=path, durability="os", segment_bytes=SEGMENT_BYTES)


@pytest.fixture(params=["store", "broker"])
def in_use(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Load]]:
    """The URL of a store or a broker, and a load on it."""
    data = tmp_path / "data"
    a_store(data).close()  # the size of its segments is noted there
    with ExitStack() as stack:
        if request.param == "store":
            url, box = f"file:{data}", stack.enter_context(a_store(data))
        else:
            url = str(stack.enter_context(running_broker(str(data), "os")))
            box = stack.enter_context(open_mailbox(f"{url}/orders", str))
        yield url, stack.enter_context(Load(box))


def files_at(url: str) -> BrokerFiles | StoreFiles:
    return BrokerFiles(url) if url.startswith("http") else StoreFiles(url.removeprefix("file:"))


def test_R58_backups_under_load_have_all_that_was_confirmed_and_nothing_that_was_deleted(
    in_use: tuple[str, Load], tmp_path: Path
) -> None:
    url, load = in_use
    for number in range(6):
        sent = len(load.record.sent) + 1_500
        load.until(lambda sent=sent: len(load.record.sent) >= sent)  # type: ignore[misc]
        copy = tmp_path / f"backup-{number}"
        with moments(load.record) as at:
            backup(files_at(url), str(copy))
        assert wrong(bodies_in(copy), at) == []
    assert len(load.record.deleted) > 1_000


def test_R58_a_store_whose_files_are_copied_begins_no_compaction(tmp_path: Path) -> None:
    with a_store(tmp_path / "data") as box, Load(box) as load:
        load.until((tmp_path / "data" / "snapshot").exists)
        files = StoreFiles(str(tmp_path / "data"))
        held = box._store.compactor
        held.hold(60)
        with held._busy:  # whatever had begun is done
            before = files.listing().snapshot_head
        sent = len(load.record.sent) + 2_000
        load.until(lambda: len(load.record.sent) > sent)
        assert files.listing().snapshot_head == before
        held.hold(0)
        load.until(lambda: files.listing().snapshot_head != before)


@pytest.mark.parametrize("first", ["log", "snapshot"])
def test_R58_control_copying_the_files_of_a_store_in_use_is_found_out(
    first: str, tmp_path: Path
) -> None:
    """As `cp -r` does it: it comes to one file later than to another, and the store goes on."""
    data, copy = tmp_path / "data", tmp_path / "copy"

    def segments() -> list[str]:
        return sorted(path.name for path in (data / "log").glob("*.seg"))

    def gone_on() -> bool:
        """Whether a snapshot was taken, from its beginning, and all segments were dropped."""
        seen.add((data / "snapshot").read_bytes()[:12])
        return len(seen) > 2 and segments()[0] > newest

    with a_store(data) as box, Load(box) as load:
        load.until((data / "snapshot").exists)
        order = ("log", "snapshot") if first == "log" else ("snapshot", "log")
        with moments(load.record) as at:
            careless_copy(data / order[0], copy / order[0])
            newest, seen = segments()[-1], set[bytes]()
            load.until(gone_on)
            careless_copy(data / order[1], copy / order[1])
    try:
        found = wrong(bodies_in(copy), at)
    except MailboxStorageError as error:
        found = [str(error)]
    assert found


class Listed(StoreFiles):
    """Files of a store that is in use. Counts how often they are listed."""

    def __init__(self, directory: Path, box: DurableMailbox[str]) -> None:
        super().__init__(str(directory))
        self._box = box
        self.listings = 0

    def listing(self) -> StoreListing:
        self.listings += 1
        return super().listing()


class Compacting(Listed):
    """Files of which the first are dropped just as they are about to be read."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        if self.listings == 1 and name != "snapshot":
            for message in self._box.receive(max_messages=1_000):
                message.acknowledge()
            self._box._store.compactor.compact()  # type: ignore[attr-defined]
        return super().read(name, offset, size)


def test_R58_segments_that_are_dropped_meanwhile_are_no_hindrance(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with a_store(data) as box:
        box.send_many([f"{n} " + "x" * 200 for n in range(2_000)])
        files = Compacting(data, box)
        backup(files, str(tmp_path / "copy"))
        assert files.listings > 1
        left = {message.body for message in box.peek(10_000)}
    assert bodies_in(tmp_path / "copy") == left
    assert len(left) == 1_000


class Finishing(Listed):
    """Files of a store whose last records are written after they are listed for the first time."""

    def listing(self) -> StoreListing:
        if self.listings == 1:
            self._box._store.log.flush()  # type: ignore[attr-defined]
        return super().listing()


def test_R58_a_segment_that_is_not_finished_when_the_next_begins_is_copied(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DurableMailbox("orders", str, path=data, segment_bytes=SEGMENT_BYTES) as box:
        box.send("one")
        store: Any = box._store
        with store.holding():
            box.send("two")  # not written yet
        with store.log._writer.lock:
            store.log._writer._allocate(SEGMENT_BYTES)  # begins the next segment
        files = Finishing(data, box)
        backup(files, str(tmp_path / "copy"))
    assert files.listings == 2
    assert bodies_in(tmp_path / "copy") == {"one", "two"}


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_R110_a_backup_changes_nothing_in_the_store(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with a_store(data) as box:
        box.send_many(["one", "two"])
        before = _digests(data)
        backup(StoreFiles(str(data)), str(tmp_path / "copy"))
        assert _digests(data) == before


def test_R71_positions_of_named_readers_are_in_the_backup(tmp_path: Path) -> None:
    from pillarbox import Log

    data = tmp_path / "data"
    with a_store(data) as box:
        box.send_many(["one", "two"])
        with Log.open(data / "log", readonly=True) as log:
            tailer = log.tailer("reports")
            tailer.read(2)
            tailer.save()
        backup(StoreFiles(str(data)), str(tmp_path / "copy"))
    with Log.open(tmp_path / "copy" / "log", readonly=True) as log:
        assert log.tailer("reports").index == 2


def test_R112_no_backup_is_made_of_a_damaged_store(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with a_store(data) as box:
        box.send_many([f"{n} " + "x" * 200 for n in range(2_000)])
        segment = sorted((data / "log").glob("*.seg"))[1]
        with segment.open("r+b") as file:
            file.seek(20_000)
            file.write(b"damage")
        with pytest.raises(BackupError, match=segment.name):
            backup(StoreFiles(str(data)), str(tmp_path / "copy"))
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_R112_a_tail_that_lacks_what_was_confirmed_is_no_backup(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with a_store(data) as box:
        box.send_many(["one", "two"])
        box.send("three")
        (segment,) = (data / "log").glob("*.seg")
        content = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(content.rindex(b"three"))
            file.write(b"THREE")
        with pytest.raises(BackupError, match="nothing was copied"):
            backup(StoreFiles(str(data)), str(tmp_path / "copy"))
        with segment.open("r+b") as file:
            file.write(content)


def killed_store(path: Path) -> None:
    """A store whose process was killed: its log has no footer."""
    program = (
        "import os; from pillarbox import open_mailbox\n"
        f"box = open_mailbox('file:{path}/tea', str)\n"
        "for n in range(50): box.send(f'cup {n:02}')\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def damage(store: Path, body: bytes) -> None:
    (segment,) = (store / "log").glob("*.seg")
    content = bytearray(segment.read_bytes())
    content[content.index(body)] ^= 1
    segment.write_bytes(content)


def test_R112_a_store_that_nobody_uses_is_not_cut_at_its_damage(tmp_path: Path) -> None:
    killed_store(tmp_path / "data")
    damage(tmp_path / "data", b"cup 20")
    with pytest.raises(BackupError, match="before valid ones, is not valid; nothing was copied"):
        backup(StoreFiles(f"{tmp_path}/data"), f"{tmp_path}/copy")
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_R112_control_without_the_search_for_later_frames_the_rest_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "evidence_of_damage", lambda frames, end: None)
    killed_store(tmp_path / "data")
    damage(tmp_path / "data", b"cup 20")
    backup(StoreFiles(f"{tmp_path}/data"), f"{tmp_path}/copy")
    with open_mailbox(f"file:{tmp_path}/copy/tea", str) as box:
        assert box.stats().ready == 20


@pytest.mark.parametrize("is_backup", [True, False], ids=["backup", "control"])
def test_R112_a_backup_that_lost_its_last_record_is_found_out(
    tmp_path: Path, is_backup: bool
) -> None:
    killed_store(tmp_path / "data")
    backup(StoreFiles(f"{tmp_path}/data"), f"{tmp_path}/copy")
    damage(tmp_path / "copy", b"cup 49")
    files = StoreFiles(f"{tmp_path}/copy", is_backup=is_backup)
    if is_backup:
        with pytest.raises(BackupError, match=r"its records end at \d+, not at \d+"):
            backup(files, f"{tmp_path}/again")
    else:  # it could be a torn tail
        backup(files, f"{tmp_path}/again")


def test_R58_a_backup_never_overwrites_anything(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    a_store(data).close()
    copy.mkdir()
    with pytest.raises(BackupError, match="exists already"):
        backup(StoreFiles(str(data)), str(copy))
    assert os.listdir(copy) == []


def test_R58_a_broker_in_memory_has_nothing_to_copy(tmp_path: Path) -> None:
    with running_broker() as url, pytest.raises(MailboxError, match="in memory"):
        backup(BrokerFiles(str(url)), str(tmp_path / "copy"))


@pytest.mark.parametrize("name", ["../keeping.json", "/etc/passwd", "confirmed", "lock", ""])
def test_R115_only_segments_and_the_snapshot_can_be_read(tmp_path: Path, name: str) -> None:
    with running_broker(str(tmp_path / "data"), "os") as url:
        with open_mailbox(f"{url}/orders", str) as box:
            box.send("one")
        with pytest.raises(MailboxError, match="neither a segment nor the snapshot"):
            BrokerFiles(str(url)).read(name, 0, 10)
