"""The commands `backup`, `restore` and `move`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.backup.moving import BATCH
from pillarbox.cli import run
from pillarbox.testing.broker import running_broker


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with open_mailbox(f"file:{tmp_path}/data/orders", str) as box:
        box.send_many(["tea", "cups", "milk"])
        box.receive()
        box.send("later", delay_seconds=3_600)
    return tmp_path / "data"


def result(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert run([str(word) for word in words] + ["--json"]) == 0, capsys.readouterr().err
    known: dict[str, Any] = json.loads(capsys.readouterr().out)
    return known


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run([str(word) for word in words]) != 0
    return " ".join(capsys.readouterr().err.split())


def test_R58_a_backup_is_restored_with_its_leases_and_delays(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = result(capsys, "backup", f"file:{data}", tmp_path / "today")
    assert (made["queues"], made["messages"]) == (1, 4)
    assert made["directory"] == str(tmp_path / "today")
    restored = result(capsys, "restore", tmp_path / "today", tmp_path / "again")
    assert (restored["queues"], restored["messages"]) == (1, 4)
    with open_mailbox(f"file:{tmp_path}/again/orders", str, create=False) as box:
        stats = box.stats()
        assert (stats.ready, stats.in_flight, stats.scheduled) == (2, 1, 1)


def test_R58_a_running_broker_is_backed_up_by_its_url(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = tmp_path / "audit"
    with running_broker(str(tmp_path / "data"), "os", audit_log=str(audit)) as url:
        with open_mailbox(f"{url}/orders", str) as box:
            box.send_many(["tea", "cups"])
        made = result(capsys, "backup", url, tmp_path / "today")
    assert made["messages"] == 2
    assert audit.read_text().count('"action":"Backup"') == 1
    assert run(["backup", str(data_url := f"file:{tmp_path}/data"), f"{tmp_path}/text"]) == 0
    assert "backed up 2 messages in" in capsys.readouterr().out, data_url


def test_R112_a_damaged_backup_is_not_restored(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result(capsys, "backup", data, tmp_path / "today")
    (segment,) = (tmp_path / "today" / "log").glob("*.seg")
    content = bytearray(segment.read_bytes())
    content[content.index(b"cups")] ^= 1
    segment.write_bytes(content)
    assert "nothing was copied" in refused(
        capsys, "restore", tmp_path / "today", tmp_path / "again"
    )
    assert not (tmp_path / "again").exists()


def test_R22_what_can_not_be_backed_up_or_restored_is_refused_with_the_reason(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    assert "exists already" in refused(capsys, "backup", data, here)
    assert "neither a broker (http://host:9324) nor a store" in refused(
        capsys, "backup", "redis://h/q", here / "x"
    )
    assert "no directory" in refused(capsys, "restore", tmp_path / "nothing", here / "x")
    assert "is not one" in refused(capsys, "restore", data, "http://127.0.0.1:9324")


def test_R12_move_takes_bodies_of_sqs_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker() as url:
        with open_mailbox(f"{url}/old", str) as box:
            box.send("tea")
        moved = result(capsys, "move", f"sqs+{url}/old", f"{url}/new", "--create")
        assert moved["moved"] == 1
        back = result(capsys, "move", f"{url}/new", f"sqs+{url}/old")
        assert (back["moved"], back["deduplicated"]) == (1, False)
        with open_mailbox(f"{url}/old", str) as box:
            assert [message.body for message in box.receive()] == ["tea"]


def test_R12_move_moves_and_says_what_is_left(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = f"file:{data}/orders", f"file:{tmp_path}/other/orders"
    assert "--create creates the target" in refused(capsys, "move", source, target)
    assert "the same queue" in refused(capsys, "move", source, source)
    moved = result(capsys, "move", source, target, "--create")
    assert moved == {
        "moved": 2, "deduplicated": True, "left": {"ready": 0, "scheduled": 1, "in_flight": 1},
    }  # fmt: skip
    assert run(["move", source, target]) == 0
    shown = capsys.readouterr()
    assert "moved 0 messages" in shown.out
    assert "left behind: 1 scheduled, 1 in flight" in " ".join(shown.err.split())


def test_R12_a_move_that_ends_early_says_how_far_it_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = f"file:{tmp_path}/a/tea", f"file:{tmp_path}/b/tea"
    with open_mailbox(source, str) as box:
        box.send_many(["x"] * (BATCH + 10))
    with open_mailbox(target, str, capacity=BATCH + 5):
        pass

    said = refused(capsys, "move", source, target)

    assert f"moved {BATCH} messages so far; run the command again for the rest" in said
    assert "receive and acknowledge some" in said
