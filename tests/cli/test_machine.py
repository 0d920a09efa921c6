"""`pillarbox doctor` and `pillarbox bench`: about this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pillarbox import open_mailbox
from pillarbox.cli import run


def test_doctor_looks_at_everything_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--data", str(tmp_path / "not" / "yet"), "--json"]) == 0

    found = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert {"Python", "Java", "Redis", "disk sync", "free space", "clock"} <= found.keys()
    assert {f"extra {name}" for name in ("broker", "redis", "sqs", "spark")} <= found.keys()
    assert all(each["advice"] for each in found.values() if each["state"] != "good")


def test_doctor_fails_where_nothing_can_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--data", "/proc", "--json"]) == 1

    found = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["disk sync"]["state"] == "bad"
    assert "--data" in found["disk sync"]["advice"]


def test_bench_measures_memory_and_every_durability(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "--seconds", "0.02", "--data", str(tmp_path), "--json"]) == 0

    results = json.loads(capsys.readouterr().out)
    names = [each["mailbox"] for each in results]
    assert names == ["memory", "disk, memory", "disk, os", "disk, fsync"]
    assert all(each["one_at_a_time"] > 0 and each["in_batches"] > 0 for each in results)
    assert list(tmp_path.iterdir()) == []


def test_bench_shows_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pillarbox.cli.bench.open_mailbox", lambda *_: open_mailbox("memory:a"))
    url = "http://key:secret@localhost:9324/orders"
    assert run(["bench", url, "--seconds", "0.02", "--data", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "http://key@localhost:9324/orders" in shown
    assert "secret" not in shown


def test_bench_never_deletes_messages_that_it_did_not_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file:{tmp_path}/data/orders"
    with open_mailbox(url, str) as orders:
        orders.send("tea")
    assert run(["bench", url, "--seconds", "0.02"]) == 1

    assert "contains 1 message; give the URL of an empty mailbox" in capsys.readouterr().err
    with open_mailbox(url, str) as orders:
        assert [message.acknowledge() for message in orders.receive()] == [True]
    assert run(["bench", url, "--seconds", "0.02", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["mailbox"] == url
