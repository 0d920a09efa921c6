"""R31, R58, R72: after a power loss at any step, every confirmed record and no garbage."""

from __future__ import annotations

import itertools
import random
import zlib

import pytest

from tests.log.crash_workloads import OPERATIONS, Run
from tests.log.support import ignore_checksums

STATES_MIN = 11_200


def run_short_workloads(first: str, states_per_step: int) -> tuple[int, list[str]]:
    """Every workload of one, two or three operations that begins with `first`."""
    states, problems = 0, []
    for length in range(3):
        for rest in itertools.product(OPERATIONS, repeat=length):
            names = (first, *rest)
            run = Run(zlib.crc32(repr(names).encode()), states_per_step=states_per_step)
            run.perform(*(OPERATIONS[name] for name in names))
            states += run.states
            problems += [f"{names}: {problem}" for problem in run.problems]
    return states, problems


def run_random_workloads(seeds: range, length: int, **options: object) -> tuple[int, list[str]]:
    states, problems = 0, []
    for seed in seeds:
        names = random.Random(seed).choices(list(OPERATIONS), k=length)
        run = Run(seed, **options)  # type: ignore[arg-type]
        run.perform(*(OPERATIONS[name] for name in names))
        states += run.states
        problems += [f"seed {seed}: {problem}" for problem in run.problems]
    return states, problems


@pytest.mark.parametrize("first", OPERATIONS)
def test_R58_every_workload_of_up_to_three_operations_survives_every_crash(first: str) -> None:
    states, problems = run_short_workloads(first, states_per_step=3)
    assert problems == []
    # Nine first operations: more than 100,000 states together.
    assert states >= STATES_MIN, states


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_R58_long_random_workloads_survive_every_crash(durability: str) -> None:
    states, problems = run_random_workloads(range(6), 25, states_per_step=4, durability=durability)
    assert problems == []
    assert states >= 3000


def test_R58_control_a_disk_that_lies_about_syncs_loses_confirmed_records() -> None:
    _, problems = run_random_workloads(range(3), 10, states_per_step=3, sync_lies=True)
    assert any("confirmed lost" in problem for problem in problems)


def test_R72_control_without_checksums_crashes_bring_back_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore_checksums(monkeypatch)
    _, problems = run_random_workloads(range(3), 10, states_per_step=6)
    assert any("garbage" in problem for problem in problems)


@pytest.mark.soak
def test_R58_soak_a_million_crash_states() -> None:
    states, problems = run_random_workloads(range(1000, 1400), 60, states_per_step=12)
    assert problems == []
    assert states >= 1_000_000
