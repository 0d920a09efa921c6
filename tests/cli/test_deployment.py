"""`pillarbox doctor URL`: each fault of a deployment is found, with what to do about it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.broker.config import Key
from pillarbox.cli.deployment import _permissions, ahead_ns, clock_of, free_space
from pillarbox.mailbox.broker.admin import describe
from pillarbox.testing import postgres, redis
from pillarbox.testing.broker import running_broker
from tests.cli.support import fill, pillarbox

Findings = dict[str, dict[str, Any]]


def doctor(url: str, code: int = 0) -> Findings:
    done = pillarbox("doctor", url, "--json")
    assert done.returncode == code, done
    found = {each["what"]: each for each in json.loads(done.stdout)}
    assert all(each["advice"] for each in found.values() if each["state"] in ("warning", "bad"))
    return found


def test_R59_a_good_broker(tmp_path: Path) -> None:
    with running_broker(str(tmp_path), "fsync") as url:
        found = doctor(f"{url}/orders")
    good = ("connection", "version", "durability", "clock", "free space", "permissions")
    assert {found[what]["state"] for what in good} == {"good"}
    assert found["replication"]["state"] == "warning"
    assert "SendMessage" in found["permissions"]["found"]


@pytest.mark.parametrize(("level", "state"), [("os", "warning"), ("memory", "warning")])
def test_R59_a_broker_that_may_lose_messages(tmp_path: Path, level: str, state: str) -> None:
    with running_broker(str(tmp_path), level) as url:
        durability = doctor(url)["durability"]
    assert (durability["state"], durability["advice"]) == (state, "use --durability fsync")


def test_R59_a_broker_in_memory_is_bad(tmp_path: Path) -> None:
    with running_broker() as url:
        assert doctor(url, 1)["durability"]["advice"] == "start it with --data"


def test_R59_a_key_learns_its_own_permissions_and_nothing_of_the_disk(tmp_path: Path) -> None:
    keys = (Key("boss", "s"), Key("clerk", "s", queues=("orders",), actions=("send",)))
    with running_broker(str(tmp_path), "fsync", keys=keys) as url:
        signed = url.replace("http://", "http://clerk:s@")
        own, other = doctor(f"{signed}/orders"), doctor(f"{signed}/mail", 1)
        assert describe(f"{url.replace('http://', 'http://boss:s@')}/mail").free_bytes is not None
    assert own["permissions"]["found"] == "orders: SendMessage, GetQueueAttributes"
    assert other["permissions"]["state"] == "bad"
    assert "free space" not in own


def test_R59_a_broker_for_other_machines_needs_keys_and_tls() -> None:
    found = list(
        _permissions("http://broker.example/a", ["SendMessage"], "broker.example", has_keys=False)
    )
    assert [each.what for each in found] == ["permissions", "access", "encryption"]
    assert [each.state for each in found] == ["good", "bad", "warning"]
    near = _permissions("http://127.0.0.1/a", ["SendMessage"], "127.0.0.1", has_keys=False)
    assert [each.what for each in near] == ["permissions"]


def test_R59_a_clock_that_is_wrong_and_a_disk_that_is_full() -> None:
    assert clock_of("host", 0.2).state == "good"
    assert [ahead_ns(theirs, 10, 20) for theirs in (3, 10, 15, 20, 26)] == [-7, 0, 0, 0, 6]
    assert clock_of("host", -7.5).found == "7.5 s behind this one"
    assert clock_of("host", 7.5).state == "bad"
    assert free_space(1 << 20, "here").state == "bad"


def test_R59_a_store_and_its_damage(tmp_path: Path) -> None:
    fill(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    found = doctor(f"file:{tmp_path}")
    assert {
        "in use",
        "durability",
        "permissions",
        "disk sync",
        "free space",
        "clock",
    } <= found.keys()
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before

    damaged = sorted((tmp_path / "log").glob("*.seg"))[0]
    data = bytearray(damaged.read_bytes())
    data[-100:] = bytes(100)
    damaged.write_bytes(data)
    assert "log repair" in doctor(f"file:{tmp_path}", 1)["log"]["advice"]


@pytest.mark.parametrize("damaged", [True, False], ids=["damaged", "control"])
def test_R112_damage_in_the_segment_that_was_written_last_is_found(
    tmp_path: Path, damaged: bool
) -> None:
    with open_mailbox(f"file:{tmp_path}/data/tea", str) as box:
        for number in range(20):
            box.send(f"cup {number:02}")
        shutil.copytree(tmp_path / "data", tmp_path / "copy")  # as after a crash
    (segment,) = (tmp_path / "copy" / "log").glob("*.seg")
    content = bytearray(segment.read_bytes())
    content[content.index(b"cup 07")] ^= damaged
    segment.write_bytes(content)
    found = doctor(f"file:{tmp_path}/copy", int(damaged))
    assert ("log" in found) == damaged
    listed = pillarbox("queue", "ls", f"file:{tmp_path}/copy")
    assert (f"pillarbox log verify {tmp_path}/copy" in listed.stderr) == damaged


def test_R59_there_is_nothing_to_check_in_memory() -> None:
    done = pillarbox("doctor", "memory:orders")
    assert (done.returncode, "nothing to check behind a memory: URL" in done.stderr) == (2, True)


def test_R59_redis_without_persistence_and_with(tmp_path: Path) -> None:
    server = redis.shared_server()
    url = f"{server.url}/doctor-queue"
    open_mailbox(url, str).close()
    before = server.ask("CONFIG", "GET", "appendonly")
    try:
        server.ask("CONFIG", "SET", "appendonly", "no")
        bad = doctor(url, 1)
        assert bad["durability"]["advice"] == "set appendonly yes"
        server.ask("CONFIG", "SET", "appendonly", "yes")
        server.ask("CONFIG", "SET", "appendfsync", "always")
        good = doctor(url)
        assert good["durability"]["state"] == good["clock"]["state"] == "good"
        assert good["replication"]["advice"] == "add a replica"
    finally:
        server.ask("CONFIG", "SET", "appendonly", *before.values())


def test_R59_a_postgresql_server() -> None:
    url = postgres.shared_server().database()
    assert doctor(f"{url}/orders", 1)["schema"]["advice"] == "pillarbox postgres init URL"
    open_mailbox(f"{url}/orders", str).close()
    found = doctor(f"{url}/orders", 1)
    assert found["schema"]["state"] == found["clock"]["state"] == "good"
    assert found["durability"]["found"] == "fsync is off"  # as it is for the servers of tests


def test_R59_nothing_answers(tmp_path: Path) -> None:
    done = pillarbox("doctor", "http://127.0.0.1:9/orders")
    assert done.returncode == 1
    assert "check that the broker is running" in done.stderr
