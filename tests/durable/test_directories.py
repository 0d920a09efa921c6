"""R58: a store several levels down survives a power cut with every directory above it."""

from __future__ import annotations

import pytest

from pillarbox.log.disk import Disk
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.testing.disk import SimDisk


def lose_what_can_be_lost(outcomes: int) -> int:
    """The power loss after which everything that was not synced is gone."""
    return 0


def after_a_power_cut(path: str) -> list[bytes]:
    """Bodies left of one confirmed send to a new store at `path`."""
    disk = SimDisk()
    box = DurableMailbox("box", bytes, path=path, disk=disk)
    box.send(b"confirmed")
    box = DurableMailbox("box", bytes, path=path, disk=disk.crash(lose_what_can_be_lost))
    return [message.body for message in box.receive(max_messages=2)]


@pytest.mark.parametrize("path", ["a", "a/b", "a/b/c", "a/b/c/d/"])
def test_R58_every_directory_that_is_made_outlives_a_power_cut(path: str) -> None:
    assert after_a_power_cut(path) == [b"confirmed"]


def test_R58_control_with_only_the_last_parent_synced_the_store_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make_directory(disk: Disk, path: str) -> None:
        disk.make_directory(path)
        disk.sync_directory(path.rpartition("/")[0] or ".")

    monkeypatch.setattr("pillarbox.log.log.make_directory", make_directory)
    monkeypatch.setattr("pillarbox.mailbox.durable_store.make_directory", make_directory)
    assert after_a_power_cut("a/b/c") == []


def test_R58_a_process_killed_between_making_a_directory_and_syncing_it_costs_nothing() -> None:
    """The next one finds the directory, which is not on disk yet, and must see to it."""
    for killed_at in range(1, 6):
        syncs = 0

        def kill(operation: str, path: str, *, limit: int = killed_at) -> None:
            nonlocal syncs
            syncs += operation == "sync_directory"
            if syncs == limit:
                raise KeyboardInterrupt

        disk = SimDisk(before=kill)
        with pytest.raises(KeyboardInterrupt):
            DurableMailbox("box", bytes, path="a/b/c", disk=disk)
        disk.before = None
        for inode, _ in disk._handles.values():
            inode.locks.clear()  # the process is gone
        DurableMailbox("box", bytes, path="a/b/c", disk=disk).send(b"confirmed")
        left = disk.crash(lose_what_can_be_lost)
        box = DurableMailbox("box", bytes, path="a/b/c", disk=left)
        assert [message.body for message in box.receive(max_messages=2)] == [b"confirmed"]
