"""R112: files of a store that belong elsewhere; what a repair leaves is what was sent."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import msgspec
import pytest

from pillarbox import DurableMailbox, MailboxStorageError, Retention
from pillarbox.mailbox.durable_store import DurableStore
from tests.cli.support import as_json, pillarbox

SEGMENT_BYTES = 16384


class Sent:
    """A store, and the messages that it must deliver, by their ids."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self._name = path, name
        self.bodies: dict[str, str] = {}

    def box(self) -> DurableMailbox[str]:
        history = Retention(age_seconds=3600)
        return DurableMailbox(
            "box", str, path=self.path, segment_bytes=SEGMENT_BYTES, history=history
        )

    def send(self, count: int) -> Sent:
        with self.box() as box:
            for _ in range(count):
                body = f"{self._name}-{len(self.bodies):04}".ljust(900, ".")
                self.bodies[box.send(body)] = body
        return self

    def segments(self) -> list[Path]:
        return sorted((self.path / "log").glob("*.seg"))

    def copy(self, path: Path) -> Sent:
        shutil.copytree(self.path, path)
        made = Sent(path, self._name)
        made.bodies = dict(self.bodies)
        return made


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sent, Sent, Sent]:
    """A store, the same store some messages earlier, and another one of the same shape."""
    path = tmp_path_factory.mktemp("stores")
    ours = Sent(path / "ours", "ours").send(65)
    older = ours.copy(path / "older")
    ours.send(3)
    theirs = Sent(path / "theirs", "them").send(65).send(3)
    assert [each.name for each in ours.segments()] == [each.name for each in theirs.segments()]
    assert len(ours.segments()) > 5
    return ours, older, theirs


def delivered(sent: Sent) -> dict[str, str]:
    """What the store delivers; each under the id that it was sent with."""
    with sent.box() as box:
        messages = box.receive(max_messages=500)
        found = {message.id: message.body for message in messages}
        assert len(found) == len(messages)
        wrong = {key for key, body in found.items() if sent.bodies.get(key) != body}
        assert not wrong, "delivered what was not sent"
        return found


def check(sent: Sent, *, saved: Callable[[int], bool]) -> None:
    """Opening refuses, verify finds it, and after a repair the store has what can be saved."""
    with pytest.raises(MailboxStorageError):
        sent.box()
    found = pillarbox("log", "verify", sent.path, "--json")
    assert found.returncode == 1
    assert all(each["end_index"] >= each["first_index"] for each in as_json(found)["damage"])
    done = pillarbox("log", "repair", sent.path, "--yes")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "repaired" in done.stdout
    assert pillarbox("log", "verify", sent.path).returncode == 0
    assert saved(len(delivered(sent)))
    assert pillarbox("log", "verify", sent.path).returncode == 0
    with sent.box() as box:
        box.send("and on it goes")


def exchange(a: Path, b: Path) -> None:
    kept = a.with_suffix(".kept")
    os.rename(a, kept)
    os.rename(b, a)
    os.rename(kept, b)


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (2, 4), (0, -1), (3, -1), (-2, -1)])
def test_R112_exchanged_segments_are_put_back_and_nothing_is_lost(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent], pair: tuple[int, int]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    files = sent.segments()
    exchange(files[pair[0]], files[pair[1]])
    check(sent, saved=lambda count: count == len(sent.bodies))


def test_R112_control_without_the_check_bodies_of_other_messages_are_delivered(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.log.recovery.check_link", lambda *_: None)
    wrong = 0
    for at in range(5):
        sent = stores[0].copy(tmp_path / str(at))
        shutil.copy(stores[2].segments()[at], sent.segments()[at])
        try:
            delivered(sent)
        except AssertionError:
            wrong += 1
        except MailboxStorageError:
            pass  # they do not hold equally many
    assert wrong


@pytest.mark.parametrize("place", [0, 2, -1])
def test_R112_a_segment_of_another_store_is_set_aside(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent], place: int
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    shutil.copy(stores[2].segments()[place], sent.segments()[place])
    check(sent, saved=lambda count: 0 < count < len(sent.bodies))
    assert list((sent.path / "log" / "aside").iterdir())


@pytest.mark.parametrize("pair", [(2, 3), (0, 3), (3, 0), (-1, 2), (2, -1)])
def test_R112_a_segment_that_was_copied_over_another_is_set_aside(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent], pair: tuple[int, int]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    files = sent.segments()
    shutil.copy(files[pair[0]], files[pair[1]])
    check(sent, saved=lambda count: 0 < count < len(sent.bodies))


@pytest.mark.parametrize("place", [0, 1, 3, -2, -1])
def test_R112_a_missing_segment_is_told(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent], place: int
) -> None:
    """Also the first, which could have been dropped, and the last, which the snapshot knows."""
    sent = stores[0].copy(tmp_path / "data")
    sent.segments()[place].unlink()
    check(sent, saved=lambda count: 0 < count < len(sent.bodies))


def test_R112_a_log_that_is_gone_altogether_is_told(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    for file in sent.segments():
        file.unlink()
    check(sent, saved=lambda count: count == 0)


def test_R112_an_older_copy_of_the_last_segment_is_told(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent, older = stores[0].copy(tmp_path / "data"), stores[1]
    last = older.segments()[-1]
    assert last.read_bytes() != (sent.path / "log" / last.name).read_bytes()
    shutil.copy(last, sent.path / "log" / last.name)
    check(sent, saved=lambda count: 65 <= count < len(sent.bodies))


def test_R112_a_renamed_segment_gets_its_name_back(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    sent.segments()[2].rename(sent.path / "log" / f"{5:020}.seg")
    check(sent, saved=lambda count: count == len(sent.bodies))


def test_R112_a_snapshot_of_another_store_is_refused_and_set_aside(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    shutil.copy(stores[2].path / "snapshot", sent.path / "snapshot")
    with pytest.raises(MailboxStorageError, match="belongs to another store"):
        sent.box()
    assert as_json(pillarbox("log", "verify", sent.path, "--json"))["snapshot_damaged"]
    done = pillarbox("log", "info", sent.path)
    assert (done.returncode, "another store" in done.stderr) == (1, True)
    check(sent, saved=lambda count: count == len(sent.bodies))


def test_R112_control_without_the_check_the_messages_of_another_store_are_delivered(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.mailbox.replay.snapshot_misfit", lambda *_: None)
    sent = stores[0].copy(tmp_path / "data")
    shutil.copy(stores[2].path / "snapshot", sent.path / "snapshot")
    with pytest.raises(AssertionError, match="not sent"):
        delivered(sent)


def test_R112_an_older_snapshot_is_fine_as_long_as_its_log_is_there(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    shutil.copy(stores[1].path / "snapshot", sent.path / "snapshot")
    assert pillarbox("log", "verify", sent.path).returncode == 0
    assert len(delivered(sent)) == len(sent.bodies)


def test_R112_an_older_snapshot_whose_log_was_dropped_is_refused_and_not_called_repaired(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    old = (sent.path / "snapshot").read_bytes()
    with sent.box() as box:
        assert all(box.acknowledge_many(box.receive(max_messages=500)))
    sent.bodies.clear()
    sent.send(40)
    store = DurableStore(sent.path, history=Retention(bytes=0))
    store.compactor.compact()
    assert store.log.first_index > 0
    store.close()
    assert len(delivered(sent)) == 40
    (sent.path / "snapshot").write_bytes(old)
    before = {file: file.read_bytes() for file in sent.path.rglob("*") if file.is_file()}
    with pytest.raises(MailboxStorageError, match="too old"):
        sent.box()
    assert pillarbox("log", "verify", sent.path).returncode == 1
    done = pillarbox("log", "repair", sent.path, "--yes")
    assert done.returncode == 1
    assert "backup" in done.stdout
    assert "repaired, and" not in done.stdout
    assert before == {file: file.read_bytes() for file in sent.path.rglob("*") if file.is_file()}


def test_R112_the_settings_of_another_store_are_refused_and_left_to_the_user(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    shutil.copy(stores[2].path / "keeping.json", sent.path / "keeping.json")
    with pytest.raises(MailboxStorageError, match="belongs to another store"):
        sent.box()
    assert pillarbox("log", "verify", sent.path).returncode == 1
    done = pillarbox("log", "repair", sent.path, "--yes")
    assert (done.returncode, "delete it" in done.stdout) == (1, True)
    (sent.path / "keeping.json").unlink()
    assert pillarbox("log", "verify", sent.path).returncode == 0
    assert len(delivered(sent)) == len(sent.bodies)


def test_R112_a_store_that_was_written_before_files_named_their_log_still_opens(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    noted = json.loads((sent.path / "keeping.json").read_bytes())
    del noted["log_id"]
    (sent.path / "keeping.json").write_text(json.dumps(noted))
    state = msgspec.msgpack.decode((sent.path / "snapshot").read_bytes()[12:])
    content = msgspec.msgpack.encode(state[:7])
    crc = google_crc32c.value(content).to_bytes(4, "little")
    (sent.path / "snapshot").write_bytes(b"PBXSNAP1" + crc + content)
    assert pillarbox("log", "verify", sent.path).returncode == 0
    assert len(delivered(sent)) == len(sent.bodies)
    assert b"log_id" in (sent.path / "keeping.json").read_bytes()


def test_R112_a_killed_store_without_its_first_segment_is_not_called_whole(
    tmp_path: Path, stores: tuple[Sent, Sent, Sent]
) -> None:
    sent = stores[0].copy(tmp_path / "data")
    (sent.path / "snapshot").unlink()
    sent.segments()[0].unlink()
    with pytest.raises(MailboxStorageError):
        sent.box()
    assert pillarbox("log", "verify", sent.path).returncode == 1
    done = pillarbox("log", "repair", sent.path, "--yes")
    assert (done.returncode, "backup" in done.stdout) == (1, True)
