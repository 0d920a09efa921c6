"""Who may open a store, how it is named, and what time it is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pillarbox import DurableMailbox, InvalidParameterError, MailboxStorageError, open_mailbox
from pillarbox.clock import WallClock

HOLDER = """
import sys
from pillarbox import open_mailbox
box = open_mailbox(sys.argv[1], str)
box.send("hello")
print("open", flush=True)
sys.stdin.read()
"""


def test_R36_a_file_url_names_a_store_and_a_mailbox_in_it(tmp_path: Path) -> None:
    with open_mailbox(f"file:{tmp_path}/data/orders", str) as orders:
        orders.send("tea")
        assert orders.name == "orders"
    assert (tmp_path / "data" / "log").is_dir()
    with open_mailbox(f"file:{tmp_path}/data/orders", str) as orders:
        assert [message.body for message in orders.receive()] == ["tea"]


def test_R31_mailboxes_of_one_process_share_a_store(tmp_path: Path) -> None:
    with (
        DurableMailbox("a", str, path=tmp_path) as a,
        DurableMailbox("b", str, path=tmp_path) as b,
        DurableMailbox("a", str, path=tmp_path) as a_again,
    ):
        a.send("x")
        assert a._store is b._store
        assert a_again.approximate_count() == 1
        assert b.approximate_count() == 0


def test_R31_a_store_is_open_at_one_level_of_durability(tmp_path: Path) -> None:
    with (
        DurableMailbox("a", str, path=tmp_path, durability="os"),
        pytest.raises(InvalidParameterError, match="durability"),
    ):
        DurableMailbox("b", str, path=tmp_path, durability="fsync")


def test_R75_a_second_process_is_told_who_has_the_store(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/data/orders"
    program = [sys.executable, "-c", HOLDER, url]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(MailboxStorageError, match=f"open in process {holder.pid}"):
            open_mailbox(url, str)
        holder.communicate("")
    with open_mailbox(url, str) as box:
        assert box.approximate_count() == 1


def test_R31_a_forked_child_can_t_write_into_its_parent_s_store(tmp_path: Path) -> None:
    with DurableMailbox("a", str, path=tmp_path) as box:
        child = os.fork()
        if child == 0:
            try:
                box.send("from the child")
            except Exception as error:  # noqa: BLE001 - whatever it is, the parent judges it
                os._exit(7 if "belongs to process" in str(error) else 8)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert box.approximate_count() == 0


def test_R31_time_in_a_store_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: real - 3600 * 10**9)  # the wall was set back
    clock = WallClock()
    clock.go_on_from(real)
    assert clock.now() >= real


def test_R31_a_delay_is_not_cut_short_when_the_wall_clock_is_set_back_over_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DurableMailbox("a", str, path=tmp_path) as box:
        box.send("later", delay_seconds=60)
        box.send("leased")
        box.receive(visibility_timeout=60)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 7200 * 10**9)
    with DurableMailbox("a", str, path=tmp_path) as box:
        stats = box.stats()
        assert (stats.ready, stats.scheduled, stats.in_flight) == (0, 1, 1)
