"""Same commands, same events, to the byte; and the bytes alone rebuild the queues (R50)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any

import pytest

from pillarbox.core import journal
from pillarbox.core.queue import Queue
from tests.model.driver import run_world
from tests.model.sameness import snapshot, view
from tests.model.world import MAIN, OTHER, World, fresh_queues

SEEDS = range(100, 112)
STEPS = 120


def _digest() -> str:
    told = hashlib.sha256()
    for seed in SEEDS:
        for entry in run_world(seed, STEPS, keep_journal=True).journal or ():
            told.update(entry)
    return told.hexdigest()


def test_R50_the_same_commands_give_the_same_bytes() -> None:
    first = [run_world(seed, STEPS, keep_journal=True).journal for seed in SEEDS]
    again = [run_world(seed, STEPS, keep_journal=True).journal for seed in SEEDS]

    assert first == again
    assert sum(len(entries or ()) for entries in first) > 1_500


def test_R50_another_process_with_another_hash_seed_gives_the_same_bytes() -> None:
    here = _digest()

    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import _digest; print(_digest())"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here


def _rebuild(world: World) -> list[Queue]:
    """Fresh queues that know nothing but the journal's bytes."""
    queues = fresh_queues(world.settings)
    by_name = {queue.name: queue for queue in queues}
    for at in (MAIN, OTHER):
        target = world.queues[at].dead_letters
        if target is not None:
            queues[at].send_dead_letters_to(by_name[target.name])
    for line in world.journal or ():
        entry = journal.decode(line)
        journal.replay(queues[entry.queue], entry, entry.body, by_name.__getitem__)
    return queues


def _state(queue: Queue) -> dict[str, Any]:
    return {
        **view(queue),
        "duplicates": list(queue.duplicates.items()),
        "groups": [(name, group.held, group.lane) for name, group in queue.groups.items()],
        "lanes": [(at, len(lane)) for at, lane in sorted(queue.lanes.items()) if lane],
        "mask": queue.mask,
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_R50_replaying_the_bytes_rebuilds_the_same_queues(seed: int) -> None:
    world = run_world(seed, STEPS, keep_journal=True)

    rebuilt = _rebuild(world)

    assert [_state(queue) for queue in rebuilt] == [_state(queue) for queue in world.queues]


def test_R50_replaying_twice_gives_the_same_insides() -> None:
    for seed in SEEDS:
        world = run_world(seed, STEPS, keep_journal=True)
        first, second = _rebuild(world), _rebuild(world)
        assert [snapshot(queue) for queue in first] == [snapshot(queue) for queue in second]
