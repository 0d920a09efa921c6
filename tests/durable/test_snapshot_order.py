"""R112: a snapshot is never newer than its log, at any level, whatever a power cut leaves."""

from __future__ import annotations

import random

import pytest

from pillarbox.core.errors import MailboxStorageError
from pillarbox.log import Log
from tests.durable.world import World, open_store


def power_cuts(first_seed: int, seeds: int) -> None:
    """Compact at level os, cut the power, and open what is left."""
    for seed in range(first_seed, first_seed + seeds):
        world = World(seed, durability="os")
        choose = random.Random(seed).randrange
        for _ in range(25):
            world.step()
        world.store.compactor.compact()
        for _ in range(8):
            open_store(world.disk.crash(choose), world.clock).log.close()


def test_R112_after_a_power_cut_no_snapshot_is_newer_than_its_log() -> None:
    power_cuts(1, 25)


def test_R112_control_a_snapshot_written_before_its_log_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Log, "make_durable", Log.flush)
    with pytest.raises(MailboxStorageError, match="newer than the log"):
        power_cuts(1, 25)
