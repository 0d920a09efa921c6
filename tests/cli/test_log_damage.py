"""`pillarbox log verify` and `repair` on damaged stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox.log import Log
from pillarbox.mailbox.durable import DurableMailbox
from tests.cli.support import as_json, fill, hurt, pillarbox, pillarbox_process

LIVE = b'"n":60,'
DONE = b'"n":1,'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


def test_R72_verify_lists_a_flipped_bit_and_exits_with_1(store: Path) -> None:
    file = hurt(store, LIVE)
    done = pillarbox("log", "verify", store)
    assert done.returncode == 1
    assert file in done.stdout
    known = pillarbox("log", "verify", store, "--json")
    assert known.returncode == 1
    (damage,) = as_json(known)["damage"]
    assert damage["end_index"] == damage["first_index"] + 1


def test_R72_a_dry_run_names_the_lost_message_and_changes_nothing(store: Path) -> None:
    hurt(store, LIVE)
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    done = pillarbox("log", "repair", store, "--dry-run", "--json")
    known = as_json(done)
    assert (done.returncode, known["repaired"]) == (1, False)
    (lost,) = known["lost"]["messages"]
    assert (lost["queue"], lost["index"]) == ("orders", known["damage"][0]["first_index"])
    assert lost["id"] in pillarbox("log", "repair", store, "--dry-run").stdout
    assert before == {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}


def test_R72_repair_asks_first_and_without_a_terminal_refuses(store: Path) -> None:
    hurt(store, LIVE)
    done = pillarbox("log", "repair", store)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert not (store / "log" / "aside").exists()


def test_R72_after_a_repair_the_store_opens_and_the_damaged_file_is_kept(store: Path) -> None:
    file = hurt(store, DONE)
    hurt_bytes = (store / "log" / file).read_bytes()
    done = pillarbox("log", "repair", store, "--yes", "--json")
    known = as_json(done)
    assert (done.returncode, known["repaired"]) == (0, True)
    assert known["lost"] == {"messages": [], "history": 1, "unknown": 0}
    (kept,) = known["kept_aside"]
    assert (store / "log" / kept).read_bytes() == hurt_bytes
    again = pillarbox("log", "verify", store)
    assert again.returncode == 0
    assert "lost before" in again.stdout
    box = DurableMailbox("orders", dict, path=store)
    assert len(box.receive(max_messages=10)) == 10
    box.close()


def test_R72_a_killed_stores_losses_are_told_from_what_later_entries_say(tmp_path: Path) -> None:
    """Without a snapshot only the entries that come after a lost one can name its message."""
    boxes = fill(tmp_path / "data", leave_open=True)
    image = tmp_path / "image" / "log"
    image.mkdir(parents=True)
    for file in (tmp_path / "data" / "log").glob("*.seg"):
        (image / file.name).write_bytes(file.read_bytes())
    for box in boxes:
        box.close()
    hurt(tmp_path / "image", DONE)
    lost = as_json(pillarbox("log", "repair", tmp_path / "image", "--dry-run", "--json"))["lost"]
    assert [each["queue"] for each in lost["messages"]] == ["orders"]


def test_R72_a_damaged_snapshot_is_told(store: Path) -> None:
    content = bytearray((store / "snapshot").read_bytes())
    content[40] ^= 1
    (store / "snapshot").write_bytes(content)
    done = pillarbox_process("log", "verify", store, "--json")
    assert done.returncode == 1
    assert as_json(done)["snapshot_damaged"]


def test_R72_cat_stops_at_damage_and_says_what_to_do(store: Path) -> None:
    hurt(store, LIVE)
    done = pillarbox("log", "cat", store)
    assert done.returncode == 1
    assert "pillarbox log repair" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_R72_repair_of_a_whole_log_does_nothing(tmp_path: Path) -> None:
    with Log.open(tmp_path / "plain") as log:
        log.append(b"x")
    done = pillarbox("log", "repair", tmp_path / "plain")
    assert (done.returncode, done.stderr) == (0, "")
    assert "is intact" in done.stdout
